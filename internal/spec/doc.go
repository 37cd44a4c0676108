// Package spec is what a user declares: the environment of a session (the
// document sandbox_spec) and the node's elasticity (scheduler_config). It parses
// strictly, so that every mistake is named with its line, its field and its
// remedy, fills defaults, lints for what must not reach a node, and turns a
// spec into the runtime's plain data. It does no I/O.
//
// The way of a spec from text to a box:
//
//	Parse ─► Document ─► Lint            what is dangerous, with reasons
//	            │
//	            └─► Resolve(template, overrides) ─► Check ─► Claim
//	                later wins, field by field      what this release cannot do is refused
package spec
