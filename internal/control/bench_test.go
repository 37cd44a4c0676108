package control_test

import (
	"testing"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/spec"
)

// What the control plane adds to the making of a box: rows, queue, state machine.
func BenchmarkCreate(b *testing.B) {
	w := newWorld(b, 1<<30, spec.Scheduler{})
	defer w.end()
	req := request(1)
	for b.Loop() {
		if _, err := w.Create(b.Context(), control.DefaultProject, req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateStop(b *testing.B) {
	w := newWorld(b, 1<<30, spec.Scheduler{})
	defer w.end()
	req := request(1)
	for b.Loop() {
		res, err := w.Create(b.Context(), control.DefaultProject, req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Stop(b.Context(), control.DefaultProject, control.Selector{IDs: []string{res[0].Session.ID}}, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateCount1000(b *testing.B) {
	w := newWorld(b, 1<<30, spec.Scheduler{})
	defer w.end()
	req := request(1000)
	for b.Loop() {
		if _, err := w.Create(b.Context(), control.DefaultProject, req); err != nil {
			b.Fatal(err)
		}
	}
}
