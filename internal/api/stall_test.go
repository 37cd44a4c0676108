package api_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/api"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// A body that stalls is cut off; an answer that takes longer than that is not.
func TestStalledBodies(t *testing.T) {
	t.Cleanup(api.SetBodyStall(100 * time.Millisecond)) // after the world's handlers have ended
	w := newWorld(t)
	id := w.session().ID()
	for name, head := range map[string]string{
		"rpc":    "POST /dsec.v1.SessionService/Get HTTP/1.1\r\nContent-Type: application/json\r\n",
		"upload": "PUT /v1/sessions/" + id + "/files?path=/f HTTP/1.1\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, head+"Host: x\r\nX-API-Key: "+w.key+"\r\nContent-Length: 100\r\n\r\n{")
		conn.SetReadDeadline(time.Now().Add(3 * time.Second))
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && resp.StatusCode < 400 || isTimeout(err) {
			t.Error(name, "still waits:", resp, err)
		}
		conn.Close()
	}
	for name, c := range map[string]*dsec.Client{"HTTP/1.1": w.client(dsec.Options{RetryFor: -1}), "HTTP/2": w.client(dsec.Options{RetryFor: -1, Transport: h2(t)})} {
		s := c.Session(id)
		if r, err := s.Sh(t.Context(), "sleep 0.4; echo x"); err != nil || string(dsec.Output(r.GetStdout())) != "x\n" {
			t.Error(name, "run:", r, err)
		}
		p, err := s.Start(t.Context(), dsec.Command{Script: "sleep 0.4; echo y"})
		if err != nil {
			t.Fatal(name, err)
		}
		var out bytes.Buffer
		if _, err := p.Wait(&out, nil); err != nil || out.String() != "y\n" {
			t.Error(name, "start:", out.String(), err)
		}
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

func h2(t *testing.T) *http.Transport {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// A client that goes away is noticed at once, also by a handler that has nothing to send.
func TestGoneClientsAreNoticed(t *testing.T) {
	w := newWorld(t)
	id := w.session().ID()
	for name, o := range map[string]dsec.Options{"HTTP/1.1": {}, "HTTP/2": {Transport: h2(t)}} {
		s := w.client(o).Session(id)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 3)
		go func() { s.Run(ctx, dsec.Command{Argv: []string{"sleep", "3"}}); ended <- struct{}{} }()
		go func() {
			for range s.Watch(ctx, "/", true) {
			}
			ended <- struct{}{}
		}()
		go func() {
			if p, err := s.Start(ctx, dsec.Command{Argv: []string{"sleep", "3"}}); err == nil {
				p.Wait(nil, nil)
			}
			ended <- struct{}{}
		}()
		running := func() int {
			_, _, m := w.curl("GET", "/metrics", "")
			n := 0
			for line := range strings.Lines(m) {
				if strings.HasPrefix(line, "dsec_requests_running") && strings.HasSuffix(strings.TrimSpace(line), " 1") {
					n++
				}
			}
			return n
		}
		wait := func(want int) {
			t.Helper()
			for deadline := time.Now().Add(2 * time.Second); running() != want; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d handlers run, want %d", name, running(), want)
				}
			}
		}
		wait(3)
		cancel()
		for range 3 {
			<-ended
		}
		wait(0)
	}
}
