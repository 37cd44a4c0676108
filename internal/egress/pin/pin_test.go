package pin

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The set agrees with a list of pairs in the order of their use.
func TestAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 5
		s := New(most)
		var model []pair // most recently used last
		use := func(p pair) {
			model = slices.DeleteFunc(model, func(q pair) bool { return q == p })
			model = append(model, p)
		}
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			return netip.AddrFrom4([4]byte{1, 1, 1, byte(rapid.IntRange(0, 3).Draw(t, "addr"))})
		})
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0:
				n, a := name.Draw(t, "n"), addr.Draw(t, "a")
				s.Add(n, a)
				use(pair{a, n})
				if len(model) > most {
					model = model[1:]
				}
			case 1:
				a := addr.Draw(t, "a")
				got := s.Names(a)
				for _, n := range got {
					use(pair{a, n})
				}
				want := 0
				for _, p := range model {
					if p.addr == a {
						want++
					}
				}
				if len(got) != want {
					t.Fatalf("%v has %v, want %d", a, got, want)
				}
			case 2:
				gone := name.Draw(t, "gone")
				s.Keep(func(n string) bool { return n != gone })
				model = slices.DeleteFunc(model, func(p pair) bool { return p.name == gone })
			}
			if s.Len() != len(model) {
				t.Fatalf("%d pins, want %d", s.Len(), len(model))
			}
			for _, p := range model {
				if !s.Has(p.name, p.addr) {
					t.Fatalf("%v is lost", p)
				}
			}
		}
	})
}
