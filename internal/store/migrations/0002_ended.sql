-- For the removal of sessions that ended long ago.

create index sessions_ended on sessions (ended_at) where ended_at > 0;
