package node

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// slowNames is an egress that takes a second to resolve, and counts.
type slowNames struct {
	egress.Network // nil: nothing else is asked of it
	asked, ended   int
	fail           error
}

func (s *slowNames) Preflight(ctx context.Context, _ *policy.Policy, _ bool) ([]egress.Preflight, error) {
	s.asked++
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		s.ended++
		return nil, ctx.Err()
	}
	return []egress.Preflight{{Name: "example.com", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}, s.fail
}

// The sessions of one create look at its names once, and their policy is written once.
func TestCreatesOfOneRequestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := &slowNames{}
		r := newRig(t, func(c *Config) { c.Egress = names })
		phases := openPhases(t)
		shared := &Shared{}
		ask := func(ctx context.Context, s *Shared) func() ([]egress.Preflight, error) {
			return r.node.preflight(ctx, &CreateRequest{Network: phases, Shared: s})
		}
		together := func(n int, want error) {
			t.Helper()
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					found, err := ask(t.Context(), shared)()
					if !errors.Is(err, want) || want == nil && (err != nil || len(found) != 1) {
						t.Errorf("found %v, %v", found, err)
					}
				})
			}
			wg.Wait()
		}
		expect := func(what string, asked, ended int) {
			t.Helper()
			synctest.Wait()
			if names.asked != asked || names.ended != ended {
				t.Errorf("%s: asked %d times, %d given up; want %d and %d", what, names.asked, names.ended, asked, ended)
			}
		}
		together(200, nil)
		together(3, nil)
		expect("one request", 1, 0)
		if _, err := ask(t.Context(), &Shared{})(); err != nil {
			t.Error(err)
		}
		expect("another request", 2, 0)
		time.Sleep(lookFresh)
		names.fail = errors.New("no such name")
		together(5, names.fail)
		expect("what is old is looked at again", 3, 0)
		names.fail = nil
		together(5, nil)
		expect("a failure is for those who met it", 4, 0)

		// It goes on as long as one waits for it, and ends with the last.
		time.Sleep(lookFresh)
		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithCancel(t.Context())
		a, b := ask(first, shared), ask(second, shared)
		cancelFirst()
		if _, err := a(); err == nil {
			t.Error("who left has got something")
		}
		expect("one has left", 5, 0)
		cancelSecond()
		if _, err := b(); err == nil {
			t.Error("who left has got something")
		}
		expect("all have left", 5, 1)
		together(1, nil)
		expect("what was given up is no result", 6, 1)

		one, err := shared.encode(phases)
		two, err2 := shared.encode(phases)
		if err != nil || err2 != nil || len(one) == 0 || &one[0] != &two[0] {
			t.Errorf("written twice: %v %v", err, err2)
		}
		if other, err := shared.encode(openPhases(t)); err != nil || &other[0] == &one[0] {
			t.Errorf("another network's form: %v", err)
		}
		_ = r.node.Close()
	})
}

func openPhases(t *testing.T) *policy.Phases {
	t.Helper()
	p, err := policy.CompilePhases(policy.Spec{Mode: policy.Whitelist, Domains: []policy.Domain{{Name: "example.com"}}}, nil, "", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
