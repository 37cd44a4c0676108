// Package rollout runs recorded episodes as agents would: for each task a
// session, its steps (write files, run commands, think, check), a verdict and a
// reward, many at a time. docs/rollout.md describes the format of tasks and
// results.
//
//	Read(TASKS.jsonl) ─► []Task ─► Runner.Run ─► Result for each rollout ─► Summary
//
// A rollout's verdict is pass or fail only when the agent's own doing decided
// it. What the platform did, or what happened before the agent could act, is an
// error: it is masked (no reward), may be retried, and is reported apart.
package rollout
