package control_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
)

func TestCreate(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{TaskTimeoutSeconds: 60})
	defer w.end()
	req := request(1)
	req.Env = map[string]string{"A": "session", "B": "1"}
	req.Secrets = map[string]string{"B": "the-secret-value", "C": "x=y"}
	req.Code = []byte("the-code-bytes")
	res := w.create(req)
	s := res[0].Session
	if res[0].Err != nil || s.Phase != "RUNNING" || s.Box == "" || s.Node != "local" || s.Template != "base@0123456789ab" || s.Started.IsZero() || !session.ValidID(s.ID) {
		t.Fatalf("got %+v", res[0])
	}
	cmd := w.node.claims[s.ID]
	if want := []string{"PATH=/bin", "A=session", "B=the-secret-value", "C=x=y"}; !slices.Equal(cmd.Claim.Env, want) {
		t.Fatalf("environment %q, want %q", cmd.Claim.Env, want)
	}
	if cmd.MaxRuntime.Seconds() != 60 || cmd.CodeDir != "/workspace" || cmd.Code == nil || cmd.Claim.Hostname != s.ID || cmd.Root.Template != s.Template {
		t.Fatalf("command %+v", cmd)
	}
	if err := w.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	rec, err := w.store.Get(t.Context(), s.ID)
	if err != nil || rec.Phase != session.Running || rec.Version != s.Version || !rec.Payload || !reflect.DeepEqual(rec.Env, req.Env) {
		t.Fatalf("stored %+v %v", rec, err)
	}
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(w.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "the-secret-value") || strings.Contains(string(b), "the-code-bytes") {
			t.Fatalf("a secret or code is stored in dsec.db%s", suffix)
		}
	}
	if _, err := w.Get(t.Context(), "other", s.ID); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatalf("another project sees it: %v", err)
	}
}

func TestCreateRefuses(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	for _, c := range []struct {
		name   string
		edit   func(*control.CreateRequest)
		reason errdefs.Reason
	}{
		{"too many", func(r *control.CreateRequest) { r.Count = control.MaxCount + 1 }, errdefs.InvalidArgument},
		{"negative", func(r *control.CreateRequest) { r.Count = -1 }, errdefs.InvalidArgument},
		{"mount", func(r *control.CreateRequest) { r.Spec.FS.Mounts = []spec.DataMount{{Source: "/etc", Target: "/d"}} }, errdefs.Forbidden},
		{"template", func(r *control.CreateRequest) { r.Template = "absent" }, errdefs.NotFound},
	} {
		req := request(1)
		c.edit(&req)
		res, err := w.Create(t.Context(), control.DefaultProject, req)
		if err == nil && len(res) == 1 && res[0].Err != nil {
			err = res[0].Err
		}
		if e := errdefs.From(err); e == nil || e.Reason != c.reason || e.Remedy == "" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := w.Create(t.Context(), "absent", request(1)); err != nil {
		t.Fatal(err)
	} else if res, _ := w.Create(t.Context(), "absent", request(2)); !errors.Is(res[1].Err, errdefs.ErrNotFound) {
		t.Fatalf("absent project: %+v", res)
	}
}

func TestCountAnswersItemByItem(t *testing.T) {
	w := newWorld(t, 1000, spec.Scheduler{MaxActiveSessions: 150, QueueLength: 20})
	defer w.end()
	req := request(200)
	req.NoWait = true
	var order []int
	req.OnItem = func(i int, r control.CreateResult) { order = append(order, i) }
	res := w.create(req)
	if len(order) != 200 {
		t.Fatalf("%d items told", len(order))
	}
	full := 0
	for i, r := range res {
		if i > 0 && r.Session != nil && r.Session.ID <= res[i-1].Session.ID {
			t.Fatalf("item %d is not later than the one before", i)
		}
		if r.Err == nil {
			continue
		}
		full++
		if r.Err.Reason != errdefs.QueueFull || r.Err.Class != errdefs.Limit || i < 170 {
			t.Fatalf("item %d: %v", i, r.Err)
		}
	}
	if full != 30 {
		t.Fatalf("%d items refused", full)
	}
	last := w.get(res[169].Session.ID)
	if last.Phase != "PENDING" || !strings.HasPrefix(last.Reason, "number 20 of 20 in the queue") {
		t.Fatalf("last of the queue: %+v", last)
	}
}

// TestNodeFull: what the node refuses waits in order, with the node's reason.
func TestNodeFull(t *testing.T) {
	w := newWorld(t, 2, spec.Scheduler{QueueLength: 100})
	defer w.end()
	a, b := w.one(), w.one()
	req := request(3)
	req.NoWait = true
	var ids []string
	for _, r := range w.create(req) {
		ids = append(ids, r.Session.ID)
	}
	eventually(t, "all wait", func() bool { return w.Gauges().Waiting == 3 })
	for i, id := range ids {
		eventually(t, "the place in the queue is told", func() bool {
			return strings.HasPrefix(w.get(id).Reason, fmt.Sprintf("number %d of 3 in the queue", i+1))
		})
	}
	if r := w.get(ids[0]).Reason; !strings.Contains(r, "all of it is promised") {
		t.Fatalf("reason %q", r)
	}
	for i, s := range []*control.Session{a, b} {
		if _, err := w.Stop(t.Context(), control.DefaultProject, control.Selector{IDs: []string{s.ID}}, ""); err != nil {
			t.Fatal(err)
		}
		w.wait(ids[i], "RUNNING")
	}
	if s := w.get(ids[2]); s.Phase != "PENDING" && s.Phase != "SCHEDULED" {
		t.Fatalf("the third overtook: %+v", s)
	}
}

func TestIdempotency(t *testing.T) {
	w := newWorld(t, 100, spec.Scheduler{})
	defer w.end()
	req := request(20)
	req.Key = "key"
	var mu sync.Mutex
	var answers [][]string
	ids := func(res []control.CreateResult) (out []string) {
		for _, r := range res {
			if r.Err != nil {
				t.Error(r.Err)
				continue
			}
			out = append(out, r.Session.ID)
		}
		return out
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got := ids(w.create(req))
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, got)
		})
	}
	wg.Wait()
	answers = append(answers, ids(w.create(req)))
	w.restart()
	answers = append(answers, ids(w.create(req)))
	for _, a := range answers {
		if len(a) != 20 || !slices.Equal(a, answers[0]) {
			t.Fatalf("answers differ: %v", answers)
		}
	}
	if w.node.count() != 20 {
		t.Fatalf("%d boxes", w.node.count())
	}
	req.Digest = "other"
	if _, err := w.Create(t.Context(), control.DefaultProject, req); !errors.Is(err, &errdefs.Error{Reason: errdefs.IdempotencyClash}) {
		t.Fatalf("another request: %v", err)
	}
	res, err := w.Stop(t.Context(), control.DefaultProject, control.Selector{Key: "key"}, "by key")
	if err != nil || len(res) != 20 || res[0].Err != nil || res[0].Session.Phase != "COMPLETED" || res[0].Session.Reason != "by key" {
		t.Fatalf("stop by key: %+v %v", res, err)
	}
	req.Digest = "digest"
	for _, r := range w.create(req) {
		if r.Err != nil || r.Session.Phase != "COMPLETED" {
			t.Fatalf("after the end: %+v", r)
		}
	}
}

// TestRetryMakesWhatWasRefused: a key's retry completes what a full queue refused.
func TestRetryMakesWhatWasRefused(t *testing.T) {
	w := newWorld(t, 100, spec.Scheduler{MaxActiveSessions: 2, QueueLength: 0})
	defer w.end()
	req := request(3)
	req.Key = "key"
	first := w.create(req)
	if first[2].Err == nil {
		t.Fatalf("got %+v", first)
	}
	if _, err := w.Stop(t.Context(), control.DefaultProject, control.Selector{IDs: []string{first[0].Session.ID}}, ""); err != nil {
		t.Fatal(err)
	}
	second := w.create(req)
	if second[0].Session.ID != first[0].Session.ID || second[0].Session.Phase != "COMPLETED" ||
		second[1].Session.ID != first[1].Session.ID || second[2].Err != nil || second[2].Session.Phase != "RUNNING" {
		t.Fatalf("got %+v", second)
	}
}

// blockCreates makes creations wait until released, or their context ends.
func (w *world) blockCreates() (entered chan string, release func()) {
	entered, gate := make(chan string, 100), make(chan struct{})
	w.node.mu.Lock()
	defer w.node.mu.Unlock()
	w.node.onCreate = func(ctx context.Context, req node.CreateRequest) error {
		entered <- req.Session
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return entered, sync.OnceFunc(func() { close(gate) })
}

// goneAtTheEnd is the context of a caller whose end is seen only when everything has been answered.
type goneAtTheEnd struct{ context.Context }

func (goneAtTheEnd) Done() <-chan struct{} { return nil }
func (goneAtTheEnd) Err() error            { return context.Canceled }

func TestAnswerThatNobodyHearsIsUndone(t *testing.T) {
	w := newWorld(t, 3, spec.Scheduler{QueueLength: 100})
	defer w.end()
	if res, err := w.Create(goneAtTheEnd{t.Context()}, control.DefaultProject, request(2)); !errors.Is(err, context.Canceled) || res != nil {
		t.Fatalf("%v %v", res, err)
	}
	w.nothingLeft()
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	w := newWorld(t, 3, spec.Scheduler{QueueLength: 100})
	defer w.end()
	entered, release := w.blockCreates()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := w.Create(ctx, control.DefaultProject, request(5)) // some made, some in line
		done <- err
	}()
	for range 3 {
		<-entered
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.nothingLeft()
	if page, _, err := w.List(t.Context(), control.DefaultProject, control.Filter{}); err != nil || len(page) != 0 {
		t.Fatalf("listed: %v %v", page, err)
	}
}

func TestKeyOutlivesItsCaller(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	entered, release := w.blockCreates()
	ctx, cancel := context.WithCancel(t.Context())
	req := request(1)
	req.Key = "key"
	done := make(chan error)
	go func() {
		_, err := w.Create(ctx, control.DefaultProject, req)
		done <- err
	}()
	id := <-entered
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	release()
	if res := w.create(req); res[0].Err != nil || res[0].Session.ID != id || res[0].Session.Phase != "RUNNING" {
		t.Fatalf("got %+v", res)
	}
}

func TestStopByKeyInFlight(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	entered, release := w.blockCreates()
	defer release()
	req := request(3)
	req.Key = "key"
	got := make(chan []control.CreateResult)
	go func() { got <- w.create(req) }()
	<-entered
	res, err := w.Stop(t.Context(), control.DefaultProject, control.Selector{Key: "key"}, "enough")
	if err != nil || len(res) != 3 {
		t.Fatalf("got %+v %v", res, err)
	}
	for i, r := range <-got {
		if r.Err == nil || r.Err.Reason != errdefs.Canceled || r.Session.Phase != "FAILED" || res[i].Session.Phase != "FAILED" {
			t.Fatalf("item %d: %+v, %+v", i, r, res[i])
		}
	}
	w.nothingLeft()
}

// TestQuotaDestroysTheBox: the box is made while the insert runs; a refused insert takes it away.
func TestQuotaDestroysTheBox(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	if err := w.store.SetQuota(t.Context(), control.DefaultProject, 1); err != nil {
		t.Fatal(err)
	}
	req := request(3)
	req.Key = "key"
	res := w.create(req)
	ok := 0
	for _, r := range res {
		if r.Err == nil {
			ok++
		} else if r.Err.Reason != errdefs.QuotaExceeded || r.Session != nil {
			t.Fatalf("got %+v", r)
		}
	}
	if ok != 1 || w.node.count() != 1 {
		t.Fatalf("%d made, %d boxes", ok, w.node.count())
	}
}

func TestCreateFails(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	w.node.onCreate = func(context.Context, node.CreateRequest) error {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "node", "no more loop devices")
	}
	res := w.create(request(1))
	if e := res[0].Err; e == nil || e.Class != errdefs.Infrastructure || res[0].Session.Phase != "FAILED" || res[0].Session.Reclaim != "acked" {
		t.Fatalf("got %+v", res[0])
	}
	w.node.onCreate = func(context.Context, node.CreateRequest) error {
		return errdefs.Userf(errdefs.NodeFull, "limits", "ask for less", "it can never fit")
	}
	if res := w.create(request(1)); res[0].Err == nil || res[0].Session.Phase != "FAILED" {
		t.Fatalf("what never fits waits: %+v", res[0])
	}
}

func TestCreateRefusesAnUnknownPriority(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{PriorityLevels: []spec.PriorityLevel{{Name: "high", Weight: 2}}})
	defer w.end()
	req := request(1)
	req.Priority = "hgih"
	if _, err := w.Create(t.Context(), "p", req); errdefs.From(err).Reason != errdefs.InvalidArgument || !strings.Contains(err.Error(), "high") {
		t.Errorf("got %v", err)
	}
	req.Priority = "high"
	if res := w.create(req); res[0].Err != nil {
		t.Error(res[0].Err)
	}
}
