package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/api"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func containsJSON(body, want string) bool {
	return strings.Contains(strings.ReplaceAll(body, " ", ""), want)
}

func TestHealth(t *testing.T) {
	w := newWorld(t)
	if err := w.client(dsec.Options{}).Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	w.api.Drain()
	if err := w.client(dsec.Options{}).Healthy(t.Context()); !dsec.IsReason(err, "unavailable") {
		t.Error(err)
	}
	if code, _, _ := w.curl("GET", "/livez", ""); code != 200 {
		t.Error("livez", code)
	}
	code, h, body := w.curl("POST", "/dsec.v1.SessionService/Create", `{"session":{}}`)
	if code != 503 || h.Get("Retry-After") == "" || detail(t, body)["retryable"] != true {
		t.Error("a create while draining:", code, h, body)
	}
	if code, _, body := w.curl("POST", "/dsec.v1.SessionService/List", `{}`); code != 200 {
		t.Error("a list while draining:", code, body)
	}
	fresh := api.New(api.Config{Control: w.ctl, Keys: w.keys, Templates: w.templates})
	rec := newRecorder()
	req, _ := http.NewRequest("GET", "/healthz", nil)
	fresh.ServeHTTP(rec, req)
	if rec.code != 503 {
		t.Error("before it is ready:", rec.code)
	}
	rec = newRecorder()
	req, _ = http.NewRequest("PUT", "/v1/sessions/x/files", nil)
	fresh.ServeHTTP(rec, req)
	if rec.code != 503 || rec.h.Get("Retry-After") == "" || detail(t, rec.body.String())["retryable"] != true {
		t.Error("a request before it is ready:", rec.code, rec.body.String())
	}
}

type recorder struct {
	h    http.Header
	code int
	body strings.Builder
}

func newRecorder() *recorder                        { return &recorder{h: http.Header{}, code: 200} }
func (r *recorder) Header() http.Header             { return r.h }
func (r *recorder) WriteHeader(code int)            { r.code = code }
func (r *recorder) Write(b []byte) (int, error)     { return r.body.Write(b) }
func (r *recorder) SetReadDeadline(time.Time) error { return nil }

// A stop waits for what runs, then ends streams with an error that says so.
func TestShutdown(t *testing.T) {
	w := newWorld(t)
	s := w.client(dsec.Options{RetryFor: -1}).Session(w.session().ID())
	p, err := s.Start(t.Context(), dsec.Command{OpID: "o", Argv: []string{"sleep", "5"}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := p.Wait(nil, nil); ended <- err }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := w.api.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d < 150*time.Millisecond || d > 2*time.Second {
		t.Errorf("it took %v: the grace is 200 ms", d)
	}
	if err := <-ended; !dsec.IsReason(err, "unavailable") {
		t.Error(err)
	}
}

func TestBothProtocols(t *testing.T) {
	w := newWorld(t)
	c := w.client(dsec.Options{Transport: h2(t)})
	s, err := c.Create(t.Context(), dsec.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Sh(t.Context(), "echo h2"); err != nil || string(dsec.Output(r.GetStdout())) != "h2\n" {
		t.Error(r, err)
	}
}
