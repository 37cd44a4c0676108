-- Owners of sessions: client processes that keep saying that they live. The signs of
-- life themselves are kept in memory; after a restart every owner gets a whole ttl again.

create table leases (
    id         text primary key,
    project    text not null references projects (id),
    key        text not null, -- of its creation, unique within the project; '' for none
    ttl_ms     bigint not null,
    on_expiry  text not null, -- stop, suspend
    ending     text not null default '', -- '' while it lives; released, expired
    created_at bigint not null,
    ended_at   bigint not null default 0
);

create unique index leases_key on leases (project, key) where key <> '';
create index leases_live on leases (id) where ended_at = 0;
create index leases_ended on leases (ended_at) where ended_at > 0;

alter table sessions add column lease text not null default '';
create index sessions_lease on sessions (project, lease, id) where lease <> '';
