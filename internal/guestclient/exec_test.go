package guestclient

import (
	"context"
	"errors"

	"net"

	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// lying connects a client to a guest that serves streams with accept.
func lying(t testing.TB, accept func(*mux.Stream, []byte)) *Client {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := mux.NewConn(far, mux.Config{Accept: accept, Hello: guestproto.Hello{Major: 1}})
		if err == nil {
			_ = c.Serve()
		}
	}()
	c, err := New(context.Background(), near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); far.Close(); <-done })
	return c
}

func TestRunFromLyingGuest(t *testing.T) {
	exit := func(r *guestproto.Result) *guestproto.ExecEvent {
		return &guestproto.ExecEvent{Kind: guestproto.EventExit, Result: r}
	}
	out := func(off int64, n int) *guestproto.ExecEvent {
		return &guestproto.ExecEvent{Kind: guestproto.EventOutput, Stream: guestproto.Stdout, Offset: off, Data: make([]byte, n)}
	}
	tests := map[string][]guestproto.Message{
		"no result":         {&guestproto.ExecEvent{Kind: guestproto.EventExit}},
		"unknown event":     {&guestproto.ExecEvent{Kind: 77}},
		"unknown stream":    {&guestproto.ExecEvent{Kind: guestproto.EventOutput, Stream: 9}},
		"exit code":         {exit(&guestproto.Result{ExitCode: 4096})},
		"negative time":     {exit(&guestproto.Result{WallMs: -1})},
		"unknown limit":     {exit(&guestproto.Result{Limit: "luck"})},
		"sum of output":     {exit(&guestproto.Result{Stdout: guestproto.Output{Head: []byte("abc"), Total: 2}})},
		"negative dropped":  {exit(&guestproto.Result{Stdout: guestproto.Output{Head: []byte("abc"), Total: 2, Dropped: -1}})},
		"wrong offset":      {out(5, 10)},
		"endless output":    {out(0, 60000), out(60000, 60000), out(120000, 60000)},
		"no answer":         {},
		"not a message":     {raw("\xff\xff\xff")},
		"negative gap":      {&guestproto.ExecEvent{Kind: guestproto.EventGap, Stream: guestproto.Stdout, Dropped: -5}},
		"result of nothing": {exit(&guestproto.Result{Survivors: -1})},
	}
	for name, events := range tests {
		t.Run(name, func(t *testing.T) {
			c := lying(t, func(s *mux.Stream, _ []byte) {
				for _, e := range events {
					if s.SendMessage(e, false) != nil {
						return
					}
				}
				_ = s.CloseSend()
			})
			_, err := c.Run(t.Context(), guestproto.ExecRequest{Script: "x", MaxOutput: 1000})
			wantError(t, err, errdefs.Policy, errdefs.BoxTampered)
		})
	}
}

// raw is a message of arbitrary bytes.
type raw string

func (r raw) EncodeFields(e *guestproto.Encoder) { e.Buf = append(e.Buf, r...) }
func (raw) DecodeFields(*guestproto.Decoder)     {}

func TestGuestCannotClaimInfrastructure(t *testing.T) {
	for _, w := range []*guestproto.WireError{
		{Class: "infrastructure", Reason: "internal", Message: "disk on fire"},
		{Class: "", Reason: "", Message: "x"},
		{Class: "user", Reason: "node_full"},
		{Class: "limit", Reason: "internal", Object: "\x1b[31m"},
	} {
		c := lying(t, func(s *mux.Stream, _ []byte) { s.Reset(w) })
		_, err := c.Run(t.Context(), guestproto.ExecRequest{Script: "x"})
		e, ok := errors.AsType[*errdefs.Error](err)
		if !ok || e.Class == errdefs.Infrastructure || e.Reason == errdefs.Internal || e.Reason == errdefs.NodeFull {
			t.Errorf("%+v became %+v", w, err)
		}
		r := lying(t, func(s *mux.Stream, _ []byte) {
			_ = s.SendMessage(&guestproto.ExecEvent{Kind: guestproto.EventExit, Result: &guestproto.Result{Error: w}}, true)
		})
		_, err = r.Run(t.Context(), guestproto.ExecRequest{Script: "x"})
		if e, ok := errors.AsType[*errdefs.Error](err); !ok || e.Class == errdefs.Infrastructure {
			t.Errorf("%+v became %+v", w, err)
		}
	}
}

func TestCollector(t *testing.T) {
	c := collector{limit: 100}
	ev := func(kind guestproto.EventKind, off int64, data string, dropped int64) {
		t.Helper()
		if err := c.add(&guestproto.ExecEvent{Kind: kind, Stream: guestproto.Stdout, Offset: off, Data: []byte(data), Dropped: dropped}); err != nil {
			t.Fatal(err)
		}
	}
	ev(guestproto.EventOutput, 0, "head", 0)
	ev(guestproto.EventGap, 4, "", 10)
	ev(guestproto.EventOutput, 14, "lost", 0)
	ev(guestproto.EventGap, 18, "", 2)
	ev(guestproto.EventOutput, 20, "tail", 0)
	var r guestproto.Result
	if err := c.finish(&r); err != nil {
		t.Fatal(err)
	}
	o := r.Stdout
	if string(o.Head) != "head" || string(o.Tail) != "tail" || o.Dropped != 16 || o.Total != 24 {
		t.Errorf("%+v", o)
	}
}

func TestNewEndsWithItsContext(t *testing.T) {
	near, far := net.Pipe()
	go func() {
		// It greets, and reads no more.
		c, err := mux.NewConn(far, mux.Config{Accept: func(*mux.Stream, []byte) {}})
		_, _ = c, err
	}()
	_ = far.SetDeadline(time.Now().Add(5 * time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := New(ctx, near)
	wantError(t, err, errdefs.User, errdefs.TimedOut)
	far.Close()
}

func FuzzRun(f *testing.F) {
	m := guestproto.Marshal(nil, &guestproto.ExecEvent{Kind: guestproto.EventExit, Result: &guestproto.Result{ExitCode: 3, Stdout: guestproto.Output{Head: []byte("x"), Total: 1}}})
	f.Add(m, m)
	f.Add(guestproto.Marshal(nil, &guestproto.ExecEvent{Kind: guestproto.EventOutput, Stream: 1, Data: []byte("x")}), m)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if len(a) > mux.MaxPayload || len(b) > mux.MaxPayload {
			t.Skip()
		}
		c := lying(t, func(s *mux.Stream, _ []byte) {
			_ = s.Send(mux.Frame{Payload: a}, false)
			_ = s.Send(mux.Frame{Payload: b}, true)
		})
		r, err := c.Run(context.Background(), guestproto.ExecRequest{Script: "x"})
		if err == nil && (r == nil || !checkResult(r)) {
			t.Fatalf("accepted %+v", r)
		}
		if e := errdefs.From(err); e != nil && e.Class == errdefs.Infrastructure {
			t.Fatalf("infrastructure: %v", err)
		}
	})
}
