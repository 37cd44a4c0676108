-- name: InsertProject :execrows
insert into projects (id, max_live, created_at) values (sqlc.arg(id), sqlc.arg(max_live), sqlc.arg(created_at))
on conflict (id) do nothing;

-- name: GetProject :one
select * from projects where id = sqlc.arg(id);

-- name: ListProjects :many
select * from projects order by id;

-- name: SetProjectQuota :execrows
update projects set max_live = sqlc.arg(max_live) where id = sqlc.arg(id);

-- name: TakeQuota :execrows
update projects set live = live + 1 where id = sqlc.arg(id) and (max_live = 0 or live < max_live);

-- name: GiveQuota :execrows
update projects set live = live - 1 where id = sqlc.arg(id);

-- name: CountLive :one
select cast(coalesce(sum(live), 0) as bigint) from projects;

-- name: InsertKey :exec
insert into api_keys (id, project, name, hash, hint, created_at)
values (sqlc.arg(id), sqlc.arg(project), sqlc.arg(name), sqlc.arg(hash), sqlc.arg(hint), sqlc.arg(created_at));

-- name: ListKeys :many
select * from api_keys order by created_at, id;

-- name: RevokeKey :execrows
update api_keys set revoked_at = sqlc.arg(revoked_at)
where id = sqlc.arg(id) and revoked_at = 0;

-- name: GetKey :one
select * from api_keys where id = sqlc.arg(id);

-- name: InsertSession :exec
insert into sessions (
    id, project, request, ordinal, job, template, priority, payload, no_pool, detached, spec, labels, env,
    version, phase, desired, reclaim, reason, error, node, box, pooled, cold_reason,
    created_at, started_at, ended_at, updated_at, lease, deadline_at, lifetime_us, at_deadline
) values (
    sqlc.arg(id), sqlc.arg(project), sqlc.arg(request), sqlc.arg(ordinal), sqlc.arg(job), sqlc.arg(template),
    sqlc.arg(priority), sqlc.arg(payload), sqlc.arg(no_pool), sqlc.arg(detached), sqlc.arg(spec), sqlc.arg(labels), sqlc.arg(env),
    sqlc.arg(version), sqlc.arg(phase), sqlc.arg(desired), sqlc.arg(reclaim), sqlc.arg(reason), sqlc.arg(error),
    sqlc.arg(node), sqlc.arg(box), sqlc.arg(pooled), sqlc.arg(cold_reason),
    sqlc.arg(created_at), sqlc.arg(started_at), sqlc.arg(ended_at), sqlc.arg(updated_at), sqlc.arg(lease),
    sqlc.arg(deadline_at), sqlc.arg(lifetime_us), sqlc.arg(at_deadline)
);

-- name: InsertLabel :exec
insert into session_labels (project, name, value, session)
values (sqlc.arg(project), sqlc.arg(name), sqlc.arg(value), sqlc.arg(session));

-- name: UpdateSession :execrows
update sessions set
    version = sqlc.arg(version), phase = sqlc.arg(phase), desired = sqlc.arg(desired), reclaim = sqlc.arg(reclaim),
    reason = sqlc.arg(reason), error = sqlc.arg(error), node = sqlc.arg(node), box = sqlc.arg(box),
    pooled = sqlc.arg(pooled), cold_reason = sqlc.arg(cold_reason),
    started_at = sqlc.arg(started_at), ended_at = sqlc.arg(ended_at), updated_at = sqlc.arg(updated_at),
    deadline_at = sqlc.arg(deadline_at), lifetime_us = sqlc.arg(lifetime_us), at_deadline = sqlc.arg(at_deadline)
where id = sqlc.arg(id) and version = sqlc.arg(from_version);

-- name: GetSession :one
select * from sessions where id = sqlc.arg(id);

-- name: SetSpec :execrows
update sessions set spec = sqlc.arg(spec) where id = sqlc.arg(id);

-- name: LiveSessions :many
select * from sessions where phase not in ('COMPLETED', 'FAILED') order by id;

-- name: SessionsByRequest :many
select * from sessions where request = sqlc.arg(request) order by ordinal;

-- name: DeleteEnded :execrows
delete from sessions where id = sqlc.arg(id) and phase in ('COMPLETED', 'FAILED');

-- name: InsertIdempotencyKey :execrows
insert into idempotency_keys (project, key, digest, request, count, created_at)
values (sqlc.arg(project), sqlc.arg(key), sqlc.arg(digest), sqlc.arg(request), sqlc.arg(count), sqlc.arg(created_at))
on conflict (project, key) do nothing;

-- name: GetIdempotencyKey :one
select * from idempotency_keys where project = sqlc.arg(project) and key = sqlc.arg(key);

-- name: DeleteIdempotencyKey :execrows
delete from idempotency_keys where project = sqlc.arg(project) and key = sqlc.arg(key) and created_at <= sqlc.arg(created_at);

-- name: ExpireIdempotencyKeys :execrows
delete from idempotency_keys where created_at <= sqlc.arg(created_at);

-- name: DeleteLabels :exec
delete from session_labels where session = sqlc.arg(session);

-- name: ExpireLabels :exec
delete from session_labels where session in (
    select s.id from sessions s where s.ended_at > 0 and s.ended_at <= sqlc.arg(before) order by s.ended_at, s.id limit sqlc.arg(most)
);

-- name: ExpireSessions :execrows
delete from sessions where id in (
    select s.id from sessions s where s.ended_at > 0 and s.ended_at <= sqlc.arg(before) order by s.ended_at, s.id limit sqlc.arg(most)
);

-- name: InsertLease :execrows
insert into leases (id, project, key, ttl_ms, on_expiry, created_at)
values (sqlc.arg(id), sqlc.arg(project), sqlc.arg(key), sqlc.arg(ttl_ms), sqlc.arg(on_expiry), sqlc.arg(created_at))
on conflict do nothing;

-- name: GetLease :one
select * from leases where id = sqlc.arg(id);

-- name: GetLeaseByKey :one
select * from leases where project = sqlc.arg(project) and key = sqlc.arg(key) and key <> '';

-- name: LiveLeases :many
select * from leases where ended_at = 0 order by id;

-- name: EndLease :execrows
update leases set ending = sqlc.arg(ending), ended_at = sqlc.arg(ended_at) where id = sqlc.arg(id);

-- name: ExpireLeases :execrows
delete from leases where leases.ended_at > 0 and leases.ended_at <= sqlc.arg(before)
    and not exists (select 1 from sessions s where s.project = leases.project and s.lease = leases.id);
