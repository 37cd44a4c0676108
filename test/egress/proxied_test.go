package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const past = `python3 -c 'import socket,sys,time
t = time.monotonic()
try: socket.create_connection(("` + egresstest.GoodAddr + `", 80), 5); print("open")
except OSError as e: print("errno", e.errno)
try: socket.getaddrinfo("good.test", 80); print("resolved")
except OSError: print("no name")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: s.sendto(b"x", ("` + egresstest.GoodAddr + `", 53)); print("sent")
except OSError as e: print("errno", e.errno)
print("quick" if time.monotonic() - t < 1 else "slow")'`

// Where boxes have no device, tools find the proxy by the usual variables, under the same policy, switch, record and life.
func TestProxyInPlaceOfADevice(t *testing.T) {
	const secret = "s3cr3t-of-a-proxied-box"
	file := filepath.Join(t.TempDir(), "credentials.yaml")
	if err := os.WriteFile(file, []byte("projects: {default: {model: {scheme: Bearer, value: "+secret+"}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, "  attach: proxy", "  credentials: "+file)
	for _, n := range []string{"good.test", "api.good.test", "evil.test"} {
		r.DNS.Set(n, egresstest.GoodAddr)
	}
	var told atomic.Value
	hello := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		told.Store(q.Header.Get("Authorization"))
		fmt.Fprintln(w, "welcome")
	})
	r.HTTP(egresstest.GoodAddr+":80", false, hello)
	r.HTTP(egresstest.GoodAddr+":443", true, hello)
	var open atomic.Int64
	r.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) {
		open.Add(1)
		defer open.Add(-1)
		_, _ = io.WriteString(c, "stream\n")
		_, _ = io.Copy(io.Discard, c)
	})
	before := r.held()
	s := r.session(`{phases: {agent: {egress_policy: whitelist, allowed_domains: [good.test, "good.test:7000/tcp", "api.good.test?credential=model"]}, verify: {egress_policy: deny}}, phase: agent}`)
	works := func(when string) {
		t.Helper()
		for name, script := range map[string]string{
			"curl":   "curl -sS --fail-with-body --max-time 20 http://good.test/",
			"python": `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://good.test/", timeout=20).read())'`,
		} {
			if out, code := r.sh(s, script); code != 0 || !strings.Contains(out, "welcome") {
				t.Errorf("%s, %s: exit %d: %s", when, name, code, out)
			}
		}
	}
	uplink := r.Uplink()
	for _, script := range []string{"curl -sSv --max-time 20 http://evil.test/", "curl -sSv --max-time 20 https://evil.test/"} {
		if out, _ := r.sh(s, script); !strings.Contains(out, "403 Refused by the egress policy: evil.test") || !strings.Contains(out, "dsec net explain "+s.ID()) {
			t.Errorf("%s: %s", script, out)
		}
	}
	if out, code := r.sh(s, past); code != 0 || strings.Fields(out)[0] != "errno" || !strings.Contains(out, "no name") || strings.Contains(out, "sent") || !strings.Contains(out, "quick") {
		t.Errorf("past the proxy: %s", out)
	}
	if n := r.Uplink() - uplink; n != 0 {
		t.Errorf("%d packets left the node", n)
	}
	works("at first")
	if out, code := r.sh(s, "curl -sS --max-time 20 https://api.good.test/v1"); code != 0 || !strings.Contains(out, "welcome") || told.Load() != "Bearer "+secret {
		t.Errorf("credential: exit %d, the server saw %q: %s", code, told.Load(), out)
	}
	if out, err := r.cli("net", "log", s.ID()); err != nil || !strings.Contains(out, "evil.test") || !strings.Contains(out, "name-not-allowed") {
		t.Errorf("the record: %v %s", err, out)
	}
	if out, err := r.cli("net", "explain", s.ID()); err != nil || !strings.Contains(out, "evil.test") {
		t.Errorf("explain: %v %s", err, out)
	}
	if out, _ := r.sh(s, "http_proxy= HTTP_PROXY= env | grep -c 13128"); strings.TrimSpace(out) != "4" {
		t.Errorf("variables: %s", out)
	}

	// A stream that is open is cut by a switch, and one by a kill; neither hangs.
	tunnel := `import socket
s = socket.create_connection(("127.0.0.1", 13128), 5)
s.settimeout(60)
s.sendall(b"CONNECT good.test:7000 HTTP/1.1\r\nHost: good.test:7000\r\n\r\n")
try:
    while s.recv(4096): pass
    print("ended")
except socket.timeout: print("hangs")
except OSError as e: print("ended")`
	op := r.background(s, "python3", "-c", tunnel)
	r.eventually(20*time.Second, "a stream is open", func() bool { return open.Load() == 1 })
	if out, err := r.cli("net", "switch", s.ID(), "verify"); err != nil {
		t.Fatalf("switch: %v %s", err, out)
	}
	if out := r.ended(s, op); !strings.Contains(out, "ended") {
		t.Errorf("the switch: %s", out)
	}
	if out, _ := r.sh(s, "curl -sSv --max-time 20 http://good.test/"); !strings.Contains(out, "policy-denies") {
		t.Errorf("after the switch: %s", out)
	}
	if out, err := r.cli("net", "switch", s.ID(), "agent"); err != nil {
		t.Fatalf("switch: %v %s", err, out)
	}
	if err := s.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	works("after a suspension")

	op = r.background(s, "python3", "-c", tunnel)
	r.eventually(20*time.Second, "a stream is open", func() bool { return open.Load() == 1 })
	r.Kill()
	// A box keeps what its programs were told of, whatever the next daemon gives to others.
	config := filepath.Join(r.DataDir(), "config.yaml")
	b, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, []byte(strings.Replace(string(b), "attach: proxy", "attach: device", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.eventually(20*time.Second, "the box has its way out again", func() bool { return r.metric("dsec_egress_boxes") == 1 })
	if out := r.ended(s, op); !strings.Contains(out, "ended") {
		t.Errorf("the kill: %s", out)
	}
	works("after a kill")
	other := r.session(`{egress_policy: whitelist, allowed_domains: [good.test]}`)
	if out, code := r.sh(other, "env | grep -ci _proxy; curl -sS --fail-with-body --max-time 20 http://good.test/"); code != 0 || !strings.HasPrefix(out, "0\n") {
		t.Errorf("a box with a device: exit %d: %s", code, out)
	}
	if err := other.Stop(t.Context(), "the test"); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context(), "the test"); err != nil {
		t.Fatal(err)
	}
	r.eventually(20*time.Second, "nothing of the box is held", func() bool {
		h := r.held()
		return h.taps == 0 && h.netns <= before.netns && r.metric("dsec_egress_boxes") == 0
	})
}

// What the session says itself wins; what a proxy cannot carry is refused.
func TestProxyVariablesAndLimits(t *testing.T) {
	r := start(t, "  attach: proxy")
	_, err := r.try(`{egress_policy: whitelist, allowed_ips: ["` + egresstest.GoodAddr + `/32:53/udp"]}`)
	if err == nil || !strings.Contains(err.Error(), "carries no UDP") {
		t.Errorf("UDP: %v", err)
	}
	s := r.session(`{egress_policy: deny}`)
	if out, _ := r.sh(s, "env | grep -ci _proxy"); strings.TrimSpace(out) != "0" {
		t.Errorf("a box without a network is told of a proxy: %s", out)
	}
	s, err = r.c.Create(t.Context(), dsec.CreateOptions{Env: map[string]string{"no_proxy": "mine.test"}, SpecYAML: `network: {egress_policy: whitelist, allowed_ips: ["` + egresstest.GoodAddr + `/32"]}`})
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := r.sh(s, "echo $no_proxy $http_proxy"); strings.TrimSpace(out) != "mine.test http://127.0.0.1:13128" {
		t.Errorf("variables: %s", out)
	}
	if out := r.replace(s, `{"egressPolicy":"whitelist","allowedIps":["`+egresstest.GoodAddr+`/32:53/udp"]}`); !strings.Contains(out, "carries no UDP") {
		t.Errorf("a switch to UDP: %s", out)
	}
	// A session that had no network gets one by a switch; its programs must be told themselves.
	r.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	none := r.session(`{egress_policy: deny}`)
	if out := r.replace(none, `{"egressPolicy":"whitelist","allowedIps":["`+egresstest.GoodAddr+`/32"]}`); !strings.Contains(out, "whitelist") {
		t.Errorf("a switch: %s", out)
	}
	if out, code := r.sh(none, "curl -sS --fail-with-body --max-time 20 --proxy http://127.0.0.1:13128 http://"+egresstest.GoodAddr+"/"); code != 0 {
		t.Errorf("after the switch: exit %d: %s", code, out)
	}
	if out, err := r.cli("net", "check", s.ID(), egresstest.GoodAddr+":53", "--udp"); err == nil || !strings.Contains(out, "has no UDP") {
		t.Errorf("check: %v %s", err, out)
	}
}

// replace switches a session to another network and gives the answer.
func (r *rig) replace(s *dsec.Session, network string) string {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.URL()+"/dsec.v1.NetworkService/Switch", strings.NewReader(`{"sessionId":"`+s.ID()+`","network":`+network+`}`))
	if err != nil {
		r.t.Fatal(err)
	}
	key, _ := r.Key()
	q.Header.Set("Authorization", "Bearer "+key)
	q.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// A machine that has no /dev/net/tun gives boxes the proxy by itself, and says so.
func TestProxyWhereNoDeviceCanBeHad(t *testing.T) {
	wrapper := filepath.Join(t.TempDir(), "dsec")
	script := "#!/bin/sh\nexec unshare --mount sh -c 'mount -t tmpfs dsec-none /dev/net && exec \"$0\" \"$@\"' " + binary() + ` "$@"` + "\n"
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DSEC_TEST_BINARY", wrapper)
	r := start(t)
	r.DNS.Set("good.test", egresstest.GoodAddr)
	r.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	s := r.session(`{egress_policy: whitelist, allowed_domains: [good.test]}`)
	if out, code := r.sh(s, "curl -sS --fail-with-body --max-time 20 http://good.test/"); code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
	if log := r.Log(); !strings.Contains(log, "boxes can have no network device here") {
		t.Errorf("the log does not say it: %s", log)
	}
	if out, _ := r.cli("doctor"); !strings.Contains(out, "open /dev/net/tun") || !strings.Contains(out, "go by a proxy") {
		t.Errorf("doctor does not say it: %s", out)
	}
}
