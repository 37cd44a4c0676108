package egress

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

// The log of a project is followed as things are tried, and has what sessions tried that have ended.
func TestLogIsFollowed(t *testing.T) {
	r := start(t)
	r.DNS.Set("evil.test", egresstest.EvilAddr)
	s := r.session(`{egress_policy: whitelist, allowed_domains: ["good.test"], preflight: "off"}`)
	key, err := r.Key()
	if err != nil {
		t.Fatal(err)
	}
	log := exec.Command(binary(), "net", "log", "--follow", "--denied", "-o", "json")
	log.Env = append(os.Environ(), "DSEC_URL="+r.URL(), "DSEC_API_KEY="+key)
	log.Stderr = os.Stderr
	out, err := log.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			select {
			case lines <- in.Text():
			default: // one is enough
			}
		}
	}()
	defer func() {
		_ = log.Process.Signal(os.Interrupt)
		for range lines { // until it ends
		}
		_ = log.Wait()
	}()
	// Tried again until it is followed: nothing says when that begins.
	timeout := time.After(30 * time.Second)
	for seen := false; !seen; {
		r.sh(s, "curl -sS --max-time 5 http://evil.test/")
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatal("it has ended")
			}
			var d struct {
				Name      string
				SessionID string `json:"session_id"`
				Verdict   string
			}
			if err := json.Unmarshal([]byte(line), &d); err != nil || d.Name != "evil.test" || d.SessionID != s.ID() || d.Verdict != "deny" {
				t.Fatalf("followed: %s, %v", line, err)
			}
			seen = true
		case <-time.After(time.Second):
		case <-timeout:
			t.Fatal("nothing is followed")
		}
	}
	if err := s.Stop(t.Context(), "over"); err != nil {
		t.Fatal(err)
	}
	if out, err := r.cli("net", "log", "--denied"); err != nil || !strings.Contains(out, "evil.test") {
		t.Errorf("of a session that has ended: %v %s", err, out)
	}
}
