package limit

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(10, 20)
		n := 0
		for b.Take(1) {
			n++
		}
		if n != 20 {
			t.Errorf("the burst was %d", n)
		}
		time.Sleep(time.Second)
		if !b.Take(10) || b.Take(1) {
			t.Error("a second is worth ten")
		}
		if d := b.Spend(5); d != 500*time.Millisecond {
			t.Errorf("a debt of 5 takes %v", d)
		}
		time.Sleep(200 * time.Millisecond)
		if d := b.Wait().Round(time.Millisecond); d != 300*time.Millisecond {
			t.Errorf("the rest takes %v", d)
		}
		var none *Bucket
		if !none.Take(1e12) || none.Spend(1e12) != 0 || NewBucket(0, 1) != nil {
			t.Error("the nil bucket limits")
		}
	})
}

func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNames(3)
		for i := range 3 {
			if !n.Admit(fmt.Sprint(i)) {
				t.Error(i)
			}
		}
		if n.Admit("x") || !n.Admit("1") {
			t.Error("the fourth name passed, or a known one did not")
		}
		time.Sleep(time.Minute)
		if !n.Admit("x") {
			t.Error("the next minute does not begin anew")
		}
	})
}

// A box with many connections gets as many turns as one with a single connection.
func TestTurnsAreByBox(t *testing.T) {
	turns := NewTurns(1)
	var mu sync.Mutex
	got := map[int]int{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for box := range 2 {
		u := turns.Join()
		for range []int{1, 20}[box] {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					u.Begin()
					time.Sleep(100 * time.Microsecond)
					mu.Lock()
					got[box]++
					mu.Unlock()
					u.End()
				}
			})
		}
	}
	time.Sleep(300 * time.Millisecond)
	close(stop)
	wg.Wait()
	if a, b := got[0], got[1]; a == 0 || a*3 < b {
		t.Errorf("one connection got %d turns, twenty %d", a, b)
	}
	if turns.free != 1 || len(turns.queue) != 0 {
		t.Errorf("%d free, %d queued in the end", turns.free, len(turns.queue))
	}
}
