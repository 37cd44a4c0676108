package api_test

import (
	"context"
	"errors"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestCreateMany(t *testing.T) {
	w := newWorld(t)
	c := w.client(dsec.Options{})
	seen := 0
	rs, err := c.CreateN(t.Context(), 5, dsec.CreateOptions{Job: "j", SpecYAML: "mem_limit: 64Mi"}, func(i int, r dsec.CreateResult) {
		if r.Session.ID() == "" {
			t.Error("item", i)
		}
		seen++
	})
	if err != nil || len(rs) != 5 || seen != 5 {
		t.Fatal(rs, seen, err)
	}
	if w.ctl.last.Spec.MemLimit != 64<<20 || w.ctl.last.Spec.PidLimit != 77 {
		t.Errorf("spec %+v", w.ctl.last.Spec)
	}
	n := 0
	for s, err := range c.List(t.Context(), dsec.ListOptions{Job: "j", PageSize: 2}) {
		if err != nil || s.GetId() != rs[n].Session.ID() {
			t.Fatal(s, err)
		}
		n++
	}
	if n != 5 {
		t.Error("listed", n)
	}
	out, err := c.Stop(t.Context(), dsec.ByJob("j"), "done")
	if err != nil || len(out) != 5 || out[0].GetSession().GetPhase() != dsec.Completed {
		t.Error(out, err)
	}
	if _, err := rs[0].Session.Sh(t.Context(), "true"); !dsec.IsReason(err, "box_gone") {
		t.Error(err)
	}
}

func TestCreateIsIdempotent(t *testing.T) {
	w := newWorld(t)
	c := w.client(dsec.Options{})
	o := dsec.CreateOptions{IdempotencyKey: "k", Secrets: map[string]string{"A": "1", "B": "2", "C": "3"}}
	a, err := c.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // the digest does not depend on the order of maps
		b, err := c.Create(t.Context(), o)
		if err != nil || a.ID() != b.ID() {
			t.Fatal(b, err)
		}
	}
	o.Secrets["A"] = "4"
	if _, err := c.Create(t.Context(), o); !dsec.IsReason(err, "idempotency_clash") {
		t.Error(err)
	}
}

func TestCancelledCreate(t *testing.T) {
	w := newWorld(t)
	w.ctl.block = make(chan struct{})
	// Not a deadline: the server would know of that by itself.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := w.client(dsec.Options{}).Create(ctx, dsec.CreateOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		w.ctl.mu.Lock()
		n := w.ctl.canceled
		w.ctl.mu.Unlock()
		if n == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the control plane was not told")
		}
	}
}

func TestLifecycle(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	ctx := t.Context()
	if err := s.Suspend(ctx); err != nil || s.Info().GetPhase() != dsec.Suspended {
		t.Error(s.Info(), err)
	}
	time.AfterFunc(20*time.Millisecond, func() { s.Resume(ctx) })
	if i, err := s.Wait(ctx, dsec.Running); err != nil || i.GetPhase() != dsec.Running {
		t.Error(i, err)
	}
	if in, err := s.Inspect(ctx); err != nil || in.GetBox().GetUsage().GetCpuMs() != 1.5 {
		t.Error(in, err)
	}
	if err := s.Heartbeat(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Stop(ctx, "done"); err != nil {
		t.Error(err)
	}
	if err := w.client(dsec.Options{}).Session("s0000000000000000000000000").Stop(ctx, ""); !dsec.IsReason(err, "not_found") {
		t.Error(err)
	}
	code, _, body := w.curl("POST", "/dsec.v1.SessionService/Wait", `{"session_id":"`+s.ID()+`","until":["RUNNING"],"timeout_ms":20}`)
	if code != 200 || !containsJSON(body, `"timed_out":true`) {
		t.Error(code, body)
	}
}
