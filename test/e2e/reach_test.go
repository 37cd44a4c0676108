package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const serverPy = `
import socket, sys, threading
def serve(l):
    while True:
        c, _ = l.accept()
        def one(c=c):
            n = 0
            while True:
                b = c.recv(65536)
                if not b: break
                n += len(b); c.sendall(b.upper())
            c.sendall(b"END %d" % n); c.close()
        threading.Thread(target=one, daemon=True).start()
t = socket.socket(); t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); t.bind(("127.0.0.1", 8000)); t.listen()
u = socket.socket(socket.AF_UNIX); u.bind("/workspace/sock"); u.listen()
threading.Thread(target=serve, args=(u,), daemon=True).start()
print("listening", flush=True)
serve(t)
`

// Ports and sockets of a server in the box are reached from outside of it.
func TestDialIntoTheBox(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	p, err := s.Start(t.Context(), dsec.Command{Argv: []string{"python3", "-c", serverPy}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	watch(p).shows(t, "listening")
	for _, to := range []struct{ network, addr string }{{"tcp", "127.0.0.1:8000"}, {"tcp", "localhost:8000"}, {"unix", "/workspace/sock"}} {
		t.Run(to.network+" "+to.addr, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience(30*time.Second))
			defer cancel()
			conn, err := s.Dial(ctx, to.network, to.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			sent := bytes.Repeat([]byte("a"), 1<<20)
			go func() {
				_, _ = conn.Write(sent)
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.ToUpper(string(sent)) + fmt.Sprintf("END %d", len(sent)); string(got) != want {
				t.Errorf("%d bytes came back, want %d", len(got), len(want))
			}
		})
	}
	for _, to := range []struct{ network, addr string }{{"tcp", "127.0.0.1:8001"}, {"unix", "/workspace/nothing"}, {"tcp", "10.1.2.3:80"}} {
		if conn, err := s.Dial(t.Context(), to.network, to.addr); err == nil {
			conn.Close()
			t.Errorf("%s %s was reached", to.network, to.addr)
		} else {
			noInfrastructure(t, err)
		}
	}
}

func TestWatch(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), patience(30*time.Second))
	defer cancel()
	mustRun(t, s, dsec.Command{Script: "mkdir -p /workspace/tree/sub"})
	events := make(chan *dsec.FileChange, 1000)
	failed := make(chan error, 1)
	go func() {
		defer close(events)
		for ev, err := range s.Watch(ctx, "/workspace/tree", true) {
			if err != nil {
				failed <- err
				return
			}
			events <- ev
		}
	}()
	want := map[string]bool{"probe": false, "sub/deep": false, "made/inside": false, "gone": false}
	poke := time.NewTicker(100 * time.Millisecond)
	defer poke.Stop()
	started, missing := false, len(want)
	for missing > 0 {
		select {
		case ev, ok := <-events:
			if !ok {
				t.Fatalf("the watch ended: %v", <-failed)
			}
			if !started && ev.GetPath() == "probe" {
				started = true
				mustRun(t, s, dsec.Command{Script: `cd /workspace/tree; echo x > sub/deep; mkdir made; sleep 0.3; echo y > made/inside; echo z > gone; rm gone`})
			}
			if seen, ok := want[ev.GetPath()]; ok && !seen && (ev.GetPath() != "gone" || ev.GetKind() == "remove") {
				want[ev.GetPath()] = true
				missing--
			}
		case <-poke.C:
			if !started { // a watch does not say when it begins
				mustRun(t, s, dsec.Command{Script: `echo x > /workspace/tree/probe`})
			}
		case <-ctx.Done():
			t.Fatalf("seen: %v", want)
		}
	}
}
