// Package sched decides: who waits and who starts (Queue), what a node can still
// promise (Ledger), and how many boxes to keep ready (Pool). It is pure: no I/O, no clock, no
// locks. Time is passed in, and a caller that shares a value between goroutines
// guards it with its own mutex.
package sched
