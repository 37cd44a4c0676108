package uplink

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

// Records name the op that ran when what they tell began, also of what ends when another runs.
func TestRecordsNameTheOp(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	var op atomic.Value
	op.Store("first")
	ns := w.Box()
	l, err := w.net.Attach(t.Context(), egress.Attachment{
		Box: egress.Identity{Box: "b", Op: func() string { return op.Load().(string) }}, Netns: ns.Open, Policy: whitelist(t, []string{"good.test"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &testBox{Netns: ns, Link: l, w: w}
	defer b.Close()
	c, err := b.dial("tcp4", b.must("good.test").String()+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	op.Store("second")
	if _, err := b.dial("tcp4", egresstest.EvilAddr+":80"); err == nil {
		t.Error("it is let out")
	}
	c.Close()
	seen := map[egress.Kind]bool{}
	w.find("the end of the connection", func(d egress.Decision) bool {
		want := "first"
		if d.Verdict == egress.Deny {
			want = "second"
		}
		if d.Op != want {
			t.Errorf("of %q, want %q: %+v", d.Op, want, d)
		}
		seen[d.Kind] = true
		return d.Kind == egress.Close
	})
	if !seen[egress.Query] || !seen[egress.Request] || !seen[egress.Connect] {
		t.Errorf("seen: %v", seen)
	}
}
