package egress

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

// A program that takes the port while there is no daemon breaks its own session's network alone, and the daemon says so.
func TestProxyPortTakenMeanwhile(t *testing.T) {
	r := start(t, "  attach: proxy")
	r.DNS.Set("good.test", egresstest.GoodAddr)
	r.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	const network = `{egress_policy: whitelist, allowed_domains: [good.test]}`
	s, other := r.session(network), r.session(network)
	op := r.background(s, "python3", "-c", `import socket,time
while True:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", 13128)); s.listen(1); break
    except OSError: s.close(); time.sleep(0.002)
open("/tmp/taken", "w").close()
while not __import__("os").path.exists("/tmp/free"): time.sleep(0.05)`)
	time.Sleep(500 * time.Millisecond)
	r.Kill()
	time.Sleep(500 * time.Millisecond)
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, code := r.sh(s, "ls /tmp/taken"); code != 0 {
		t.Fatalf("the port was not taken: %s", out)
	}
	if log := r.Log(); !strings.Contains(log, "has taken 127.0.0.1:13128") {
		t.Errorf("the log does not say it: %s", log)
	}
	if out, err := r.cli("net", "check", s.ID(), "good.test:80"); err == nil || !strings.Contains(out, "has taken 127.0.0.1:13128") {
		t.Errorf("check: %v %s", err, out)
	}
	const curl = "curl -sS --fail-with-body --max-time 20 http://good.test/"
	if out, code := r.sh(other, curl); code != 0 {
		t.Errorf("the other box: %s", out)
	}
	if out, _ := r.sh(s, "touch /tmp/free"); out != "" {
		t.Fatal(out)
	}
	r.ended(s, op)
	if out, err := r.cli("net", "switch", s.ID(), "base"); err != nil {
		t.Fatalf("switch: %v %s", err, out)
	}
	if out, code := r.sh(s, curl); code != 0 {
		t.Errorf("after the port was let go: %s", out)
	}
}

// Boxes with a proxy that come and go leave nothing in the daemon.
func TestProxyChurn(t *testing.T) {
	r := start(t, "  attach: proxy")
	r.DNS.Set("good.test", egresstest.GoodAddr)
	r.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	once := func(n int) {
		t.Helper()
		for _, s := range r.boxes(n, "network: {egress_policy: whitelist, allowed_domains: [good.test]}\n") {
			if out, code := r.sh(s, "curl -sS --fail-with-body --max-time 20 http://good.test/"); code != 0 {
				t.Errorf("exit %d: %s", code, out)
			}
			if err := s.Stop(t.Context(), "the test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	once(5)
	time.Sleep(time.Second)
	before, goroutines := r.held(), r.metric("go_goroutines")
	once(full(100, 15))
	r.eventually(20*time.Second, "the daemon is as it was before", func() bool {
		h := r.held()
		return h.netns <= before.netns && h.fds <= before.fds+4 && r.metric("go_goroutines") <= goroutines+8 && r.metric("dsec_egress_boxes") == 0
	})
	figure(t, "proxied boxes: descriptors %d before, %d after; goroutines %.0f before, %.0f after", before.fds, r.held().fds, goroutines, r.metric("go_goroutines"))
}
