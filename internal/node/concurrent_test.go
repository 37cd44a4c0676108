package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/runtime/fake"
	"github.com/dsec-platform/dsec/internal/spec"
)

// Everybody does everything to the same few sessions, boxes die in between, destroys fail now and then;
// afterwards nothing is left and nothing is promised.
func TestEverythingAtOnce(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 3, MaxIdle: 6, IdleScaleUpStep: 2}), func(c *Config) {
		c.PatrolInterval = 5 * time.Millisecond
		c.Memory = 160 * mib
	})
	r.rt.SetHooks(fake.Hooks{Destroy: func(context.Context, string) error {
		if rand.IntN(10) == 0 {
			return context.DeadlineExceeded
		}
		return nil
	}})
	go func() {
		for range r.node.Events() {
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				s := fmt.Sprintf("s%d", rand.IntN(8))
				one, stop := context.WithTimeout(context.Background(), time.Duration(rand.IntN(3000))*time.Microsecond)
				switch rand.IntN(8) {
				case 0, 1, 2:
					q := request(s)
					q.MaxIdle = time.Millisecond
					_, _ = r.node.Create(one, q)
				case 3:
					_ = r.node.Destroy(one, s, "test")
				case 4:
					_ = r.node.Suspend(one, s)
					_ = r.node.Resume(one, s)
				case 5:
					if _, release, err := r.node.Acquire(one, s); err == nil {
						release()
					}
				case 6:
					if i, err := r.node.Inspect(one, s); err == nil && rand.IntN(4) == 0 {
						if b := r.rt.Box(i.Box); b != nil {
							b.Kill()
						}
					}
				case 7:
					if _, err := r.node.Inventory(one); err != nil {
						t.Error(err)
					}
					r.node.Stats(one)
				}
				stop()
			}
		})
	}
	wg.Wait()
	r.rt.SetHooks(fake.Hooks{})
	for i := range 8 {
		r.destroy(fmt.Sprintf("s%d", i))
	}
	r.node.SetDraining(true)
	eventually(t, "nothing is left", func() bool {
		st := r.node.Stats(context.Background())
		return len(r.rt.IDs()) == 0 && st.Boxes == 0 && st.MemPromised == 0 && st.CPUPromised == 0
	})
	if st := r.node.Stats(context.Background()); st.OrphansRemoved != 0 {
		t.Errorf("%d orphans", st.OrphansRemoved)
	}
	r.crash()
	r.start()
	r.empty()
}
