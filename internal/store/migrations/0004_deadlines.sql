-- When a session's time is up, whatever it does; 0: never. The lifetime is what the deadline
-- was set to be away, for a resume after it has passed.

alter table sessions add column deadline_at bigint not null default 0;
alter table sessions add column lifetime_us bigint not null default 0;
alter table sessions add column at_deadline text not null default ''; -- stop, suspend
