package api_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// instant answers at once, so that what is measured is the gateway, the client
// and the loopback between them.
type instant struct {
	*memControl
	guest guestclient.API
}

type instantGuest struct{ guestclient.API }

func (instantGuest) Run(_ context.Context, req guestproto.ExecRequest) (*guestproto.Result, error) {
	return &guestproto.Result{OpID: req.OpID, Stdout: guestproto.Output{Head: []byte("1\n"), Total: 2}}, nil
}

func (c instant) Guest(context.Context, string, string) (guestclient.API, func(), error) {
	return c.guest, func() {}, nil
}

func (c instant) Create(_ context.Context, project string, req control.CreateRequest) ([]control.CreateResult, error) {
	return []control.CreateResult{{Session: &control.Session{ID: "s0000000000000000000000000", Project: project, Phase: "RUNNING", Spec: req.Spec}}}, nil
}

func benchWorld(b *testing.B) *dsec.Client {
	w := newWorld(b, func(c *api.Config) {
		c.Control = instant{newMemControl(b.TempDir), instantGuest{}}
		c.Logger = slog.New(slog.DiscardHandler)
		c.Rate = api.Rate{PerSecond: 1e9, Burst: 1e9}
	})
	return w.client(dsec.Options{})
}

func BenchmarkRun(b *testing.B) {
	s := benchWorld(b).Session("s0000000000000000000000000")
	cmd := dsec.Command{Argv: []string{"true"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Run(context.Background(), cmd); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRunParallel(b *testing.B) {
	s := benchWorld(b).Session("s0000000000000000000000000")
	cmd := dsec.Command{Argv: []string{"true"}}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Run(context.Background(), cmd); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkCreate(b *testing.B) {
	c := benchWorld(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Create(context.Background(), dsec.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoopback is the floor: one bare HTTP request and answer.
func BenchmarkLoopback(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })}
	go srv.Serve(ln)
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		resp, err := http.Post("http://"+ln.Addr().String(), "text/plain", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
