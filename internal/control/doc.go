// Package control is the control plane: it drives the state machine (session),
// the queue (sched), the truth (store) and the node.
//
// # Who may change what
//
// A session that has not ended is a *live in memory. Its state changes only
// through Control.change and Control.conclude, which apply an event, hand the new row to the store in order,
// and tell those that wait. Commands to the node about one session (make, freeze, thaw, destroy)
// are sent by one goroutine at a time, the holder of live.busy. A *live's mutex is never
// held during I/O, and Control.mu is never taken under it.
//
// # What is durable when
//
// A create's insert is durable before its reply; the box is made meanwhile and
// destroyed again if the insert fails. RUNNING, suspensions and the wish to stop
// are written behind: after a crash they follow from the node's inventory. An end is durable
// before anybody hears of it, and follows the node's acknowledgement that nothing of the box is left.
//
// # Choices
//
// Past max_runtime the node ends the box's processes (a frozen box could not serve its files: what
// reads them is accounted to the agent and would be frozen too); the session is SUSPENDED with desired "audit" and its
// verdict (class limit, reason timed_out) recorded. Its evidence is readable for the
// audit grace, or until somebody stops it; then it is FAILED with that verdict.
//
// An idle session whose owner sent a heartbeat within three intervals is left
// alone: the owner lives and thinks. Without one it is reclaimed and COMPLETED. A suspended
// one is when its max_suspended is over, heartbeats or not: it holds memory, and no other clock of it runs.
//
// A lease is an owner of sessions: a client process. Its signs of life are kept in memory, so
// that they cost no write; after a restart, or when this process stood still, each has its whole TTL
// again. The end of a lease is marked under Control.mu before its sessions are looked for, and
// sessions are added under it, so that none escapes; it is stored after their ends, so that a crash in
// between only does it again. A session whose owner fell silent FAILS with class limit, reason owner_lost: neither the
// agent nor the platform is to blame. While a lease lives, its sessions do not idle away.
//
// Secrets and code live in memory until the box has them. A session that waited for
// a box when the server died is queued again, unless it had secrets or code, or a
// caller who waited for it and is gone.
package control
