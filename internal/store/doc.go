// Package store is the truth of what was asked for and what became of it:
// projects, keys, sessions and idempotency keys in SQL.
//
// One set of statements serves SQLite (here) and PostgreSQL; db is generated from
// queries.sql. Rows are written only when a lifecycle state changes, compare-and-swap on
// version. All writes go through one group committer (see committer), in the order in which
// they were handed over; reads use their own connections and see what is committed.
//
// Secrets and code of a session are never given to this package.
package store

//go:generate env CGO_ENABLED=0 go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate
