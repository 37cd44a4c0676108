package egress

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const python = `import socket,sys,time
def attempt(host, port):
    t = time.monotonic()
    try:
        s = socket.create_connection((host, port), 5); s.close(); r = "open"
    except OSError as e: r = type(e).__name__ + " " + str(e)
    return r, (time.monotonic() - t) * 1000
for hp in sys.argv[1:]:
    host, port = hp.rsplit(":", 1)
    r, ms = attempt(host, int(port))
    print(hp, r, "slow" if ms > 1000 else "")
`

// connects tells for each HOST:PORT what a connect from the box gives.
func (r *rig) connects(s interface{ ID() string }, run func(string) (string, int), targets ...string) string {
	r.t.Helper()
	out, _ := run("python3 - " + strings.Join(targets, " ") + " <<'EOF'\n" + python + "EOF")
	return out
}

func TestAllowedNamesAndNothingElse(t *testing.T) {
	r := start(t)
	r.DNS.Set("api.good.test", egresstest.GoodAddr)
	r.DNS.Set("evil.test", egresstest.EvilAddr)
	r.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	r.HTTP(egresstest.EvilAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	s := r.session(`{egress_policy: whitelist, allowed_domains: [api.good.test]}`)
	run := func(script string) (string, int) { return r.sh(s, script) }

	out, _ := run(`python3 -c 'import urllib.request; print(urllib.request.urlopen("http://api.good.test/").status)'`)
	if !strings.Contains(out, "200") {
		t.Errorf("an allowed name: %s", out)
	}
	for _, url := range []string{"http://evil.test/", "https://evil.test/"} {
		if out, _ := run("curl -sS --max-time 5 " + url); !strings.Contains(out, "the egress policy refuses this request to evil.test") || !strings.Contains(out, "dsec net explain "+s.ID()) {
			t.Errorf("%s: %s", url, out)
		}
	}
	out = r.connects(s, run, "evil.test:22", egresstest.EvilAddr+":80", egresstest.GoodAddr+":22", egresstest.MetadataAddr+":80", egresstest.NodeAddr+":22", "10.0.2.2:22")
	for line := range strings.Lines(out) {
		if strings.Contains(line, " open") || strings.Contains(line, "slow") {
			t.Errorf("refused at once is: %s", line)
		}
	}
	if out, err := r.cli("net", "check", s.ID(), "api.good.test:80"); err != nil || !strings.Contains(out, "allowed") {
		t.Errorf("check: %v %s", err, out)
	}
	if out, err := r.cli("net", "check", s.ID(), "evil.test:443"); err == nil || !strings.Contains(out, "refused") {
		t.Errorf("check: %v %s", err, out)
	}
	out, err := r.cli("net", "log", s.ID(), "--denied", "-o", "json")
	if err != nil || !strings.Contains(out, "evil.test") || strings.Contains(out, `"verdict":"allow"`) {
		t.Errorf("log: %v %s", err, out)
	}
	if out, err := r.cli("net", "explain", s.ID()); err != nil || !strings.Contains(out, "evil.test") {
		t.Errorf("explain: %v %s", err, out)
	}
	// The record names the op that did it.
	if _, err := s.Run(t.Context(), dsec.Command{Argv: []string{"curl", "-sS", "--max-time", "5", "http://evil.test/"}, OpID: "the-culprit"}); err != nil {
		t.Error(err)
	}
	if out, err := r.cli("net", "log", s.ID(), "--denied", "-o", "json"); err != nil || !strings.Contains(out, `"op":"the-culprit"`) {
		t.Errorf("log: %v %s", err, out)
	}

	// Without a policy there is nothing to ask and no way.
	closed := r.session(`{egress_policy: deny}`)
	out = r.connects(closed, func(script string) (string, int) { return r.sh(closed, script) }, "api.good.test:80", egresstest.GoodAddr+":80")
	if strings.Contains(out, " open") || strings.Contains(out, "slow") {
		t.Errorf("a box that may reach nothing: %s", out)
	}
}

func TestNameThatDoesNotResolveFailsTheCreate(t *testing.T) {
	r := start(t)
	_, err := r.try(`{egress_policy: whitelist, allowed_domains: [missing.test]}`)
	if err == nil || !strings.Contains(err.Error(), "missing.test") {
		t.Errorf("create: %v", err)
	}
	r.session(`{egress_policy: whitelist, allowed_domains: [missing.test], preflight: "off"}`)
}

func TestPhases(t *testing.T) {
	r := start(t)
	r.DNS.Set("api.good.test", egresstest.GoodAddr)
	r.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	s := r.session(`{egress_policy: deny, phases: {setup: {egress_policy: whitelist, allowed_domains: [api.good.test]}, agent: {egress_policy: deny}}}`)
	get := `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://api.good.test/", timeout=3).status)'`
	if out, _ := r.sh(s, get); !strings.Contains(out, "200") {
		t.Fatalf("the first phase is setup: %s", out)
	}
	if out, err := r.cli("inspect", s.ID()); err != nil || !strings.Contains(out, "whitelist in phase setup: ") {
		t.Errorf("inspect: %v %s", err, out)
	}
	if out, err := r.cli("net", "switch", s.ID(), "agent"); err != nil {
		t.Fatalf("switch: %v %s", err, out)
	}
	if out, code := r.sh(s, get); code == 0 {
		t.Errorf("after the switch: %s", out)
	}
	if out, err := r.cli("net", "switch", s.ID(), "nonsense"); err == nil || !strings.Contains(out, "setup") {
		t.Errorf("a phase that is not there: %v %s", err, out)
	}
	// The phase in force outlives the daemon.
	r.Kill()
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, code := r.sh(s, get); code == 0 {
		t.Errorf("after a restart: %s", out)
	}
	if out, err := r.cli("net", "switch", s.ID(), "setup"); err != nil {
		t.Fatalf("switch: %v %s", err, out)
	}
	if out, _ := r.sh(s, get); !strings.Contains(out, "200") {
		t.Errorf("switched back after a restart: %s", out)
	}
}

// Boxes keep their way out over a kill -9 of the daemon, and what waited meanwhile fails instead of hanging.
func TestDaemonDies(t *testing.T) {
	r := start(t)
	r.DNS.Set("api.good.test", egresstest.GoodAddr)
	r.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	s := r.session(`{egress_policy: whitelist, allowed_domains: ["api.good.test:80/tcp"]}`)
	reader := `import socket,sys,time
s = socket.create_connection(("api.good.test", 80))
print("connected", flush=True)
try: s.recv(1); print("ended")
except OSError as e: print("failed", e)
`
	p, err := s.Start(t.Context(), dsec.Command{Argv: []string{"python3", "-c", reader}})
	if err != nil {
		t.Fatal(err)
	}
	op := p.OpID()
	time.Sleep(500 * time.Millisecond)
	p.Close()
	r.Kill()
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for {
		info, err := s.Op(t.Context(), op, false)
		if err == nil && !info.GetRunning() {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("a reader hangs after the daemon's death")
		}
		time.Sleep(100 * time.Millisecond)
	}
	if out, _ := r.sh(s, `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://api.good.test/", timeout=5).status)'`); !strings.Contains(out, "200") {
		t.Errorf("after the restart: %s", out)
	}
}
