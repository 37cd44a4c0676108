package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/control"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a gateway on a TCP port and a unix socket over in-memory fakes.
type world struct {
	t         testing.TB
	api       *api.API
	ctl       *memControl
	keys      *memKeys
	templates *memTemplates
	url, sock string
	key       string // of the project default
	logs      *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newWorld(t testing.TB, change ...func(*api.Config)) *world {
	t.Helper()
	w := &world{t: t, ctl: newMemControl(t.TempDir), keys: &memKeys{m: map[string]control.Key{}}, templates: &memTemplates{}, logs: &syncBuffer{}}
	_, w.key, _ = w.keys.CreateKey(t.Context(), "default", "first")
	cfg := api.Config{
		Control: w.ctl, Keys: w.keys, Templates: w.templates, Importer: w.templates, SpoolDir: t.TempDir(),
		Registry: prometheus.NewRegistry(), Version: "v1",
		Logger: slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&cfg)
	}
	w.api = api.New(cfg)
	w.api.SetReady()
	// A short directory: socket paths are short.
	dir, err := os.MkdirTemp("", "dsec-api-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.sock = filepath.Join(dir, "s")
	for _, l := range []struct{ network, addr string }{{"tcp", "127.0.0.1:0"}, {"unix", w.sock}} {
		ln, err := net.Listen(l.network, l.addr)
		if err != nil {
			t.Fatal(err)
		}
		if l.network == "tcp" {
			w.url = "http://" + ln.Addr().String()
		}
		go w.api.Server().Serve(ln)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		w.api.Shutdown(ctx)
		for _, m := range w.ctl.sessions {
			if m.guest != nil {
				m.guest.end()
			}
		}
	})
	return w
}

func (w *world) client(o dsec.Options) *dsec.Client {
	w.t.Helper()
	if o.URL == "" {
		o.URL = w.url
	}
	if o.APIKey == "" && !strings.HasPrefix(o.URL, "unix") {
		o.APIKey = w.key
	}
	c, err := dsec.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

func (w *world) session() *dsec.Session {
	w.t.Helper()
	s, err := w.client(dsec.Options{}).Create(context.Background(), dsec.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// guest is the host guest of a session.
func (w *world) guest(id string) *hostGuest {
	g, _, err := w.ctl.Guest(context.Background(), "default", id)
	if err != nil {
		w.t.Fatal(err)
	}
	return g.(*hostGuest)
}

// curl sends a request as a script would, and gives status, headers and body.
func (w *world) curl(method, path, body string, header ...string) (int, http.Header, string) {
	w.t.Helper()
	req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", w.key)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			req.Header.Del(header[i])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// detail is the error detail of a JSON answer.
func detail(t testing.TB, body string) map[string]any {
	t.Helper()
	var e struct {
		Details []struct {
			Debug map[string]any `json:"debug"`
		} `json:"details"`
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || len(e.Details) != 1 {
		t.Fatalf("no error with one detail: %s", body)
	}
	return e.Details[0].Debug
}
