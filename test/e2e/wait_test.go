package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/launch"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// patience stretches a time limit where the machine is known to be slow:
// DSEC_TEST_SLOW says how many times (an emulated one).
func patience(d time.Duration) time.Duration {
	if slow, err := strconv.Atoi(os.Getenv("DSEC_TEST_SLOW")); err == nil && slow > 0 {
		return d * time.Duration(slow)
	}
	return d
}

// eventually waits until ok holds. The machine may be slow: it waits long.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience(30 * time.Second))
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain waited for: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// metric is a series of GET /metrics, given as it is written there; 0 when it is absent.
func (e *env) metric(t *testing.T, series string) float64 {
	t.Helper()
	key, err := e.Key()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

// phaseOf asks for a session's phase and why.
func phaseOf(t *testing.T, s *dsec.Session) (string, *dsec.Error) {
	t.Helper()
	info, err := s.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.GetPhase(), dsec.FromWire(info.GetError())
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// inProcesses names the process of the platform, if any, whose environment or arguments hold needle.
func inProcesses(dataDir, needle string) string {
	for pid, name := range launch.Processes(dataDir) {
		for _, f := range []string{"environ", "cmdline"} {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, f)); err == nil && strings.Contains(string(b), needle) {
				return fmt.Sprintf("%s of %s", f, name)
			}
		}
	}
	return ""
}
