-- Times are microseconds since 1970, 0 for "not yet". JSON is text.

create table projects (
    id         text primary key,
    max_live   bigint not null default 0, -- 0: no bound
    live       bigint not null default 0, -- sessions that have not ended
    created_at bigint not null
);

create table api_keys (
    id         text primary key,
    project    text not null references projects (id),
    name       text not null,
    hash       bytea not null unique, -- SHA-256 of the key; the key itself is stored nowhere
    hint       text not null,         -- some of its characters, to tell keys apart
    created_at bigint not null,
    revoked_at bigint not null default 0
);

create table sessions (
    id          text primary key,
    project     text not null references projects (id),
    request     text not null, -- the create call that made it
    ordinal     integer not null,
    job         text not null,
    template    text not null,
    priority    text not null,
    payload     boolean not null, -- came with secrets or code, which are stored nowhere
    no_pool     boolean not null,
    detached    boolean not null, -- its create outlives its caller
    spec        text not null,
    labels      text not null,
    env         text not null,
    version     bigint not null,
    phase       text not null,
    desired     text not null,
    reclaim     text not null,
    reason      text not null,
    error       text not null,
    node        text not null,
    box         text not null,
    pooled      boolean not null,
    cold_reason text not null,
    created_at  bigint not null,
    started_at  bigint not null,
    ended_at    bigint not null,
    updated_at  bigint not null
);

create index sessions_project on sessions (project, id);
create index sessions_phase on sessions (project, phase, id);
create index sessions_job on sessions (project, job, id) where job <> '';
create index sessions_live on sessions (id) where phase not in ('COMPLETED', 'FAILED');
create unique index sessions_request on sessions (request, ordinal);

create table session_labels (
    project text not null,
    name    text not null,
    value   text not null,
    session text not null references sessions (id),
    primary key (project, name, value, session)
);

create index session_labels_session on session_labels (session);

create table idempotency_keys (
    project    text not null,
    key        text not null,
    digest     text not null,
    request    text not null,
    count      integer not null,
    created_at bigint not null,
    primary key (project, key)
);

create index idempotency_keys_age on idempotency_keys (created_at);
