package sched_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/sched"
)

func TestQueueFull(t *testing.T) {
	q := sched.NewQueue(1, 1)
	for i, want := range []int{0, 1} {
		if got, err := q.Offer(fmt.Sprint(i)); err != nil || got != want {
			t.Fatalf("offer %d: %d, %v", i, got, err)
		}
	}
	_, err := q.Offer("2")
	e := errdefs.From(err)
	if e.Class != errdefs.Limit || e.Reason != errdefs.QueueFull || !e.Retryable || e.Remedy == "" ||
		!strings.Contains(e.Message, "number 2 in a queue of 1") {
		t.Fatalf("got %#v", e)
	}
	if q.Known("2") {
		t.Fatal("a refused session is known")
	}
}

func TestRefusedKeepsItsPlace(t *testing.T) {
	q := sched.NewQueue(2, 10)
	for _, id := range []string{"a", "b", "c", "d"} {
		if _, err := q.Offer(id); err != nil {
			t.Fatal(err)
		}
	}
	if p := q.Refused("b"); p != 1 {
		t.Fatalf("b at %d", p)
	}
	if p := q.Refused("a"); p != 1 || q.Position("b") != 2 || q.Position("c") != 3 {
		t.Fatalf("a %d b %d c %d", p, q.Position("b"), q.Position("c"))
	}
	var got []string
	for {
		id, ok := q.Next()
		if !ok {
			break
		}
		got = append(got, id)
	}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("got %v", got)
	}
}

// TestQueueModel compares with the plainest possible model: a slice in order of arrival.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxActive, maxWaiting := rapid.IntRange(0, 4).Draw(t, "active"), rapid.IntRange(0, 5).Draw(t, "waiting")
		q := sched.NewQueue(maxActive, maxWaiting)
		var arrived, waiting, active []string // arrived: in order, those known
		order := func(id string) int { return slices.Index(arrived, id) }
		room := func() bool { return maxActive == 0 || len(active) < maxActive }
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				n++
				id := fmt.Sprint(n)
				pos, err := q.Offer(id)
				switch {
				case len(waiting) == 0 && room():
					if err != nil || pos != 0 {
						t.Fatalf("%s should be active: %d %v", id, pos, err)
					}
					active, arrived = append(active, id), append(arrived, id)
				case len(waiting) < maxWaiting:
					if err != nil || pos != len(waiting)+1 {
						t.Fatalf("%s should wait: %d %v", id, pos, err)
					}
					waiting, arrived = append(waiting, id), append(arrived, id)
				default:
					if !errors.Is(err, &errdefs.Error{Reason: errdefs.QueueFull}) {
						t.Fatalf("%s: %v", id, err)
					}
				}
			},
			"next": func(t *rapid.T) {
				id, ok := q.Next()
				if want := len(waiting) > 0 && room(); ok != want {
					t.Fatalf("next: %v, want %v", ok, want)
				}
				if ok {
					if id != waiting[0] {
						t.Fatalf("next gave %s before %s", id, waiting[0])
					}
					active, waiting = append(active, id), waiting[1:]
				}
			},
			"refused": func(t *rapid.T) {
				if len(active) == 0 {
					t.Skip()
				}
				id := rapid.SampledFrom(active).Draw(t, "id")
				pos := q.Refused(id)
				active = slices.DeleteFunc(active, func(x string) bool { return x == id })
				waiting = append(waiting, id)
				slices.SortFunc(waiting, func(a, b string) int { return order(a) - order(b) })
				if pos != slices.Index(waiting, id)+1 {
					t.Fatalf("refused %s at %d of %v", id, pos, waiting)
				}
			},
			"done": func(t *rapid.T) {
				if len(arrived) == 0 {
					t.Skip()
				}
				id := rapid.SampledFrom(arrived).Draw(t, "id")
				q.Done(id)
				not := func(x string) bool { return x == id }
				active, waiting = slices.DeleteFunc(active, not), slices.DeleteFunc(waiting, not)
			},
			"": func(t *rapid.T) {
				if q.Active() != len(active) || q.Waiting() != len(waiting) {
					t.Fatalf("counts %d/%d, want %d/%d", q.Active(), q.Waiting(), len(active), len(waiting))
				}
				if maxActive > 0 && q.Active() > maxActive {
					t.Fatalf("%d active of %d", q.Active(), maxActive)
				}
				for i, id := range waiting {
					if q.Position(id) != i+1 {
						t.Fatalf("%s at %d, want %d", id, q.Position(id), i+1)
					}
				}
			},
		})
	})
}
