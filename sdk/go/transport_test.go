package dsec

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// counted counts the writes of a connection.
type counted struct {
	net.Conn
	writes *atomic.Int32
}

func (c counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// A small call goes out in one write, so that the server wakes up once for it.
func TestSmallCallsAreOneWrite(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	}))
	defer server.Close()
	var writes atomic.Int32
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return counted{conn, &writes}, err
	}}
	c, err := New(Options{URL: server.URL, APIKey: "k", Transport: transport, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if _, err := c.Execs.Run(t.Context(), &dsecv1.RunRequest{SessionId: "s"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := writes.Load(); n != 3 {
		t.Errorf("3 calls were %d writes", n)
	}
}
