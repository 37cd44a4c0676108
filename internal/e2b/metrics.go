package e2b

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
)

const (
	// sampling is the time over which CPU use is measured.
	sampling = 100 * time.Millisecond
	// maxMeasured is how many sandboxes one call measures, measuring how many at the same time.
	maxMeasured = 100
	measuring   = 16
)

// metric is a measurement of a sandbox. There is one, of now: figures are not kept.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"` // of all the sandbox's cores together
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"` // not told apart: it is in memUsed
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// metrics measures one sandbox; the answer is empty if now is not within start and end.
func (f *Facade) metrics(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "start", "end"); err != nil {
		return err
	}
	now := time.Now().Unix()
	within := true
	for name, fits := range map[string]func(int64) bool{
		"start": func(t int64) bool { return t <= now },
		"end":   func(t int64) bool { return t >= now },
	} {
		s := r.URL.Query().Get(name)
		if s == "" {
			continue
		}
		t, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return badQuery(name, "give seconds since 1970", s)
		}
		if t > 1e11 { // Python's SDK of 2025 sends milliseconds
			t /= 1000
		}
		within = within && fits(t)
	}
	s, err := f.asked(r)
	if err != nil {
		return err
	}
	out := []metric{}
	if within {
		m, err := f.cfg.Sandboxes.measure(r.Context(), s)
		if err != nil {
			return err
		}
		out = append(out, *m)
	}
	WriteJSON(w, http.StatusOK, out)
	return nil
}

// metricsOfMany measures sandboxes by their ids; those that there are not are left out.
func (f *Facade) metricsOfMany(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "sandbox_ids"); err != nil {
		return err
	}
	ids := strings.Split(strings.Join(r.URL.Query()["sandbox_ids"], ","), ",")
	if len(ids) > maxMeasured || ids[0] == "" {
		return errdefs.Userf(errdefs.InvalidArgument, "parameter sandbox_ids", "give 1 to "+strconv.Itoa(maxMeasured)+", with commas between", "has %d ids", len(ids))
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, measuring)
	out := map[string]*metric{}
	project := CallerOf(r.Context()).Project
	for _, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s, err := f.cfg.Sandboxes.mine(r.Context(), project, id)
			if err != nil {
				return
			}
			if m, err := f.cfg.Sandboxes.measure(r.Context(), s); err == nil {
				mu.Lock()
				out[id] = m
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	WriteJSON(w, http.StatusOK, map[string]any{"sandboxes": out})
	return nil
}

// measure looks twice, so that CPU use is of now and not of the whole life.
func (s *Sandboxes) measure(ctx context.Context, of *control.Session) (*metric, error) {
	began := time.Now()
	before, err := s.box(ctx, of)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(sampling):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := s.box(ctx, of)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	used := after.Usage.CPU - before.Usage.CPU
	n := cpus(&of.Spec)
	return &metric{
		Timestamp: now.UTC(), TimestampUnix: now.Unix(), CPUCount: n,
		CPUUsedPct: 100 * float64(used) / float64(now.Sub(began)) / float64(n),
		MemUsed:    after.Usage.Memory, MemTotal: int64(of.Spec.MemLimit),
		DiskUsed: after.Usage.StoreUsed, DiskTotal: after.Usage.StoreLimit,
	}, nil
}

func (s *Sandboxes) box(ctx context.Context, of *control.Session) (*node.Inspect, error) {
	in, err := s.control.Inspect(ctx, of.Project, of.ID)
	if err != nil {
		return nil, err
	}
	if box, ok := in.Box.(*node.Inspect); ok && box != nil {
		return box, nil
	}
	return nil, noSandbox(of.ID)
}
