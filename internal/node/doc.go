// Package node is the data plane of one machine: it admits, makes, keeps and
// reclaims boxes, and is the truth of what runs.
//
// Invariants, and where they are kept:
//
//   - Memory is promised once. A promise is made before a box is (admit.go) and
//     taken back only after the runtime has proven that nothing of the box is left (reclaim.go).
//   - Nothing is done before it is journaled (journal.go). After a kill -9 at any
//     moment the next Start (adopt.go) keeps every bound and every idle pooled box, and
//     removes whatever was half made or half destroyed.
//   - A box that was used never returns to a pool (pool.go).
//   - A dead or silent guest on a healthy node is class policy, never infrastructure (guest.go).
//   - No box has a goroutine of its own: one goroutine runs all clocks (clock.go), one
//     looks at all ends and warnings (watch.go). A guest connection is made when it is first used.
//
// Locks, in the order in which they may be nested: Node.mu, pools.mu, session.mu,
// box.mu; those of ledger, clock and journal come last. None is held across a call of a runtime or a guest.
package node
