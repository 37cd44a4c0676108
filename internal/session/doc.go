// Package session is the life of a session as pure code: a Row, the events that
// may befall it, and what has to be done then.
//
//	PENDING → SCHEDULED → RUNNING ⇄ SUSPENDED → COMPLETED | FAILED
//
// Two more fields complete the state. Desired is what was asked for (a stop is
// remembered before it is carried out). Reclaim is how far the box's removal has
// come: none, pending, acked (the node says that nothing is left), fenced (the node is
// lost and its epoch was raised, so that it can never run the box again).
//
// The rules, each tested as a property:
//   - COMPLETED and FAILED are entered only with reclaim acked or fenced.
//   - A session has at most one box in its life.
//   - The version rises with every change, and only with a change.
//   - Every event may be delivered twice; the second time changes nothing.
//   - The first verdict stands: an error, once recorded, is never replaced.
//
// Nothing here does I/O or reads a clock.
package session
