package guest

import (
	"runtime"
	"testing"
	"time"
)

// However fast orphans end, one goroutine looks at the survivors.
func TestOrphansMakeOneLook(t *testing.T) {
	s := NewServer(Options{})
	before := runtime.NumGoroutine()
	for range 10000 {
		s.orphaned()
	}
	if n := runtime.NumGoroutine() - before; n > 1 {
		t.Errorf("%d goroutines look", n)
	}
	for end := time.Now().Add(5 * time.Second); s.looking.Load() != lookNone; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the look does not end")
		}
	}
}
