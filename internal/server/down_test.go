package server

import "testing"

func TestWhatDownSays(t *testing.T) {
	known := map[string]string{"b1": "s1", "b2": "s2", "b3": ""}
	for _, c := range []struct {
		boxes []string
		want  string
	}{
		{nil, "no box was there; nothing is left"},
		{[]string{"b3"}, "boxes removed: 1 of the warm pool; nothing is left"},
		{[]string{"b1", "b2", "b3", "b4"}, "boxes removed: 2 of sessions, 1 of the warm pool, 1 half made or half removed; nothing is left"},
	} {
		var e Ended
		for _, b := range c.boxes {
			e.count(known, b)
		}
		if got := e.String(); got != c.want || e.Boxes() != len(c.boxes) {
			t.Errorf("%v: %q, %d boxes", c.boxes, got, e.Boxes())
		}
	}
}
