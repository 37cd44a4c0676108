package envd

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/dsec-platform/dsec/gen/filesystem"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Limits of watchers: each holds a stream to its box, and what nobody fetches is kept here.
const (
	maxWatchers   = 64 // of a sandbox
	maxEvents     = 10_000
	maxEventBytes = 4 << 20 // of a watcher: names may be as long as paths
)

// unasked is how long a watcher is kept that nobody asks. Tests shorten it.
var unasked = 30 * time.Minute

// watchers collect changes for those who ask from time to time. They are the server's own and
// end with it; SDKs then see that theirs is not found.
type watchers struct {
	mu   sync.Mutex
	byID map[string]*watcher
	wg   sync.WaitGroup
	over bool
}

type watcher struct {
	sandbox string
	cancel  context.CancelFunc
	idle    *time.Timer

	mu     sync.Mutex
	events []*pb.FilesystemEvent
	bytes  int // of the events
	err    error
}

func (w *watchers) init() { w.byID = map[string]*watcher{} }

// close ends all watchers and waits for them.
func (w *watchers) close() {
	w.mu.Lock()
	w.over = true
	for id, one := range w.byID {
		one.end()
		delete(w.byID, id)
	}
	w.mu.Unlock()
	w.wg.Wait()
}

func (w *watcher) end() {
	w.idle.Stop()
	w.cancel()
}

// add keeps a watcher and runs collect for it.
func (w *watchers) add(one *watcher, collect func()) (id string, err error) {
	id = "w" + rand.Text()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, other := range w.byID {
		if other.sandbox == one.sandbox {
			n++
		}
	}
	if w.over || n >= maxWatchers {
		return "", errdefs.Limitf(errdefs.RateLimited, "sandbox "+one.sandbox, "remove some", "it has %d watchers", n)
	}
	one.idle = time.AfterFunc(unasked, func() { w.remove(id, one.sandbox) })
	w.byID[id] = one
	w.wg.Go(collect)
	return id, nil
}

// get gives a watcher of the sandbox.
func (w *watchers) get(id, sandbox string) (*watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.byID[id]; one != nil && one.sandbox == sandbox {
		one.idle.Reset(unasked)
		return one, nil
	}
	return nil, noWatcher(id)
}

// remove ends a watcher of the sandbox.
func (w *watchers) remove(id, sandbox string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.byID[id]
	if one == nil || one.sandbox != sandbox {
		return noWatcher(id)
	}
	one.end()
	delete(w.byID, id)
	return nil
}

func noWatcher(id string) error {
	return errdefs.Userf(errdefs.NotFound, "watcher "+e2b.Clip(id), "create one", "there is none, it was removed, or nobody asked it for %v", unasked)
}

// collect keeps the changes of a directory until the watch ends.
func (w *watcher) collect(ctx context.Context, dir *watch) {
	for {
		ev, err := dir.next(ctx)
		w.mu.Lock()
		switch {
		case errors.Is(err, io.EOF):
			err = errdefs.Userf(errdefs.NotFound, "path "+e2b.Clip(dir.dir), "watch another", "the directory is gone")
		case err == nil && (len(w.events) == maxEvents || w.bytes+proto.Size(ev) > maxEventBytes):
			err = errdefs.Limitf(errdefs.RateLimited, "path "+e2b.Clip(dir.dir), "ask more often", "more changes were not fetched than are kept, %d of %d MiB", maxEvents, maxEventBytes>>20)
		}
		if err == nil {
			w.events = append(w.events, ev)
			w.bytes += proto.Size(ev)
		}
		w.err = err
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take gives what was collected; the reason why nothing more comes after the last of it.
func (w *watcher) take() ([]*pb.FilesystemEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events, w.bytes = nil, 0
	if len(events) > 0 {
		return events, nil
	}
	return nil, w.err
}

func (f *filesystem) CreateWatcher(ctx context.Context, q *pb.CreateWatcherRequest) (*pb.CreateWatcherResponse, error) {
	ctx, g, release, err := f.files(ctx)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	dir, err := f.open(life, g, q.GetPath(), q.GetRecursive(), q.GetIncludeEntry())
	if err != nil {
		cancel()
		release()
		return nil, err
	}
	one := &watcher{sandbox: sandboxOf(ctx).ID, cancel: cancel}
	id, err := f.watchers.add(one, func() {
		one.collect(life, dir)
		dir.Close()
		release()
	})
	if err != nil {
		cancel()
		dir.Close()
		release()
		return nil, err
	}
	return &pb.CreateWatcherResponse{WatcherId: id}, nil
}

func (f *filesystem) GetWatcherEvents(ctx context.Context, q *pb.GetWatcherEventsRequest) (*pb.GetWatcherEventsResponse, error) {
	one, err := f.watchers.get(q.GetWatcherId(), sandboxOf(ctx).ID)
	if err != nil {
		return nil, err
	}
	events, err := one.take()
	if err != nil {
		return nil, err
	}
	return &pb.GetWatcherEventsResponse{Events: events}, nil
}

func (f *filesystem) RemoveWatcher(ctx context.Context, q *pb.RemoveWatcherRequest) (*pb.RemoveWatcherResponse, error) {
	if err := f.watchers.remove(q.GetWatcherId(), sandboxOf(ctx).ID); err != nil {
		return nil, err
	}
	return &pb.RemoveWatcherResponse{}, nil
}
