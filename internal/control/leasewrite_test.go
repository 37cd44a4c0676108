package control_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/spec"
)

// breakLeases makes the database refuse changes of leases until mend.
func (w *world) breakLeases() (mend func()) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		w.t.Fatal(err)
	}
	exec := func(text string) {
		w.t.Helper()
		if _, err := db.ExecContext(context.Background(), text); err != nil {
			w.t.Fatal(err)
		}
	}
	exec(`create trigger broken before update on leases begin select raise(abort, 'broken'); end`)
	return func() {
		exec(`drop trigger broken`)
		db.Close()
	}
}

// TestReleaseThatCannotBeWritten: the one that keeps its sessions did not happen, and the lease still
// watches over them; the one that stops them comes to its end without being asked again.
func TestReleaseThatCannotBeWritten(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	keep, stop := w.lease(2*time.Second, ""), w.lease(time.Hour, "")
	kept, stopped := w.create(owned(1, keep))[0].Session, w.create(owned(1, stop))[0].Session
	mend := w.breakLeases()
	for _, id := range []string{keep, stop} {
		if _, err := w.ReleaseLease(t.Context(), project, id, id == keep); errdefs.From(err).Class != errdefs.Infrastructure || !errdefs.From(err).Retryable {
			t.Fatalf("a release that could not be written: %v", err)
		}
	}
	w.renew(keep)
	if more := w.create(owned(1, keep)); more[0].Err != nil {
		t.Fatalf("its lease lives: %v", more[0].Err)
	}
	if l, err := w.GetLease(t.Context(), project, keep); err != nil || l.Ending != "" || l.Sessions != 2 {
		t.Fatalf("got %+v, %v", l, err)
	}
	// Nobody waits for the store longer than he wants to.
	for name, call := range map[string]func(context.Context) error{
		"renew":   func(ctx context.Context) error { _, err := w.RenewLease(ctx, project, stop); return err },
		"release": func(ctx context.Context) error { _, err := w.ReleaseLease(ctx, project, stop, false); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call(ctx); errdefs.From(err).Reason != errdefs.TimedOut {
			t.Errorf("%s while its end cannot be written: %v", name, err)
		}
		cancel()
	}
	if res := w.create(owned(1, stop)); res[0].Err == nil || res[0].Err.Reason != errdefs.OwnerLost {
		t.Errorf("created for a lease that ends: %+v", res[0])
	}
	w.wait(stopped.ID, "COMPLETED")
	mend()
	eventually(t, "its end is written", func() bool {
		l, err := w.GetLease(t.Context(), project, stop)
		return err == nil && l.Ending == "released"
	})
	if got := w.wait(kept.ID, "FAILED"); got.Error.Reason != errdefs.OwnerLost {
		t.Errorf("the lease that was not released no longer watches: %+v", got)
	}
}

// TestLeaseThatEndsDuringCreate: what was not made says that its owner is gone, and not that
// something clashed.
func TestLeaseThatEndsDuringCreate(t *testing.T) {
	for name, end := range map[string]func(w *world, id string){
		"released": func(w *world, id string) {
			if _, err := w.release(id); err != nil {
				w.t.Error(err)
			}
		},
		"expired": func(w *world, id string) {
			eventually(w.t, "it expires", func() bool {
				l, err := w.GetLease(context.Background(), project, id)
				return err == nil && l.Ending == "expired"
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1000, spec.Scheduler{})
			defer w.end()
			ttl := 300 * time.Millisecond
			if name == "released" {
				ttl = time.Hour
			}
			id := w.lease(ttl, control.StopSessions)
			begun := make(chan struct{}, 1000)
			w.node.mu.Lock()
			w.node.onCreate = func(ctx context.Context, _ node.CreateRequest) error {
				begun <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
			w.node.mu.Unlock()
			done := make(chan []control.CreateResult)
			go func() {
				res, err := w.Create(context.Background(), project, owned(500, id))
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			<-begun
			end(w, id)
			unmade := 0
			for _, r := range <-done {
				if r.Session == nil {
					unmade++
					if r.Err.Reason != errdefs.OwnerLost {
						t.Fatalf("not made: %v", r.Err)
					}
				}
			}
			if unmade == 0 {
				t.Fatal("all of them were begun before it ended: nothing was tried")
			}
		})
	}
}

func (w *world) release(id string) (int, error) {
	return w.ReleaseLease(context.Background(), project, id, false)
}
