package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// With max_active_sessions reached, sessions wait in line, first in, first out, and are told why.
func TestQueue(t *testing.T) {
	t.Parallel()
	e := startOwn(t, "--no-pool", "--config", configFile(t, "scheduler_config: {max_active_sessions: 2, queue_length: 3}"))
	a, b := e.session(t, dsec.CreateOptions{}), e.session(t, dsec.CreateOptions{})
	var waiting []*dsec.Session
	for range 3 {
		s := e.session(t, dsec.CreateOptions{NoWait: true})
		waiting = append(waiting, s)
	}
	for i, s := range waiting {
		info, err := s.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.GetPhase() != dsec.Pending || !strings.HasPrefix(info.GetReason(), "number "+string(rune('1'+i))+" of 3") {
			t.Errorf("number %d: %s, %q", i+1, info.GetPhase(), info.GetReason())
		}
	}
	if _, err := e.c.Create(t.Context(), dsec.CreateOptions{}); !dsec.IsReason(err, "queue_full") {
		t.Errorf("with a full line: %v", err)
	}
	if _, err := waiting[0].Sh(t.Context(), "true"); !dsec.IsReason(err, "conflict") {
		t.Errorf("an op on a waiting session: %v", err)
	}
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i, s := range waiting {
		wg.Go(func() {
			if _, err := s.Wait(t.Context(), dsec.Running); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, i)
		})
	}
	ran := func() int { mu.Lock(); defer mu.Unlock(); return len(order) }
	for i, s := range []*dsec.Session{a, b, waiting[0]} {
		if err := s.Stop(t.Context(), "room for another"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next of the line runs", func() bool { return ran() > i })
	}
	wg.Wait()
	if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
		t.Errorf("they ran in the order %v", order)
	}
}

// A session that waits for memory is told what is missing.
func TestQueueForMemory(t *testing.T) {
	t.Parallel()
	e := startOwn(t, "--no-pool")
	stats, err := e.c.Nodes.GetStats(t.Context(), &dsecv1.GetStatsRequest{})
	if err != nil {
		t.Fatal(dsec.AsError(err))
	}
	most := fmt.Sprintf("mem_limit: %d\nfs: {writable_size_limit: 1Mi, tmp_size_limit: 1Mi}", stats.GetMemTotal()*6/10)
	first := e.session(t, dsec.CreateOptions{SpecYAML: most})
	second := e.session(t, dsec.CreateOptions{SpecYAML: most, NoWait: true})
	eventually(t, "the second is refused by the node", func() bool {
		info, err := second.Get(t.Context())
		return err == nil && strings.Contains(info.GetReason(), "memory")
	})
	time.Sleep(100 * time.Millisecond)
	if phase, _ := phaseOf(t, second); phase != dsec.Pending {
		t.Errorf("memory was promised twice: %s", phase)
	}
	if err := first.Stop(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Wait(t.Context(), dsec.Running); err != nil {
		t.Fatal(err)
	}
	mustRun(t, second, dsec.Command{Argv: []string{"true"}})
}
