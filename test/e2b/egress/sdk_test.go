// Package egress drives E2B's unmodified Python SDK in a small internet of its own: the daemon runs in a network
// namespace whose uplink leads to stand-in servers. It needs root; bin/dsec must be built (make build).
package egress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
)

const sdk = "e2b==2.63.0"

// program makes a sandbox that may reach one name, and prints what becomes of three requests.
const program = `
from e2b import Sandbox, ALL_TRAFFIC
s = Sandbox.create("base", timeout=120, network={"deny_out": [ALL_TRAFFIC], "allow_out": ["api.good.test"]})
def get(name):
    r = s.commands.run("curl -s -o /dev/null -w '%{http_code}' --max-time 10 http://" + name + "/ || true")
    print(name, r.stdout.strip())
try:
    get("api.good.test")
    get("evil.test")
    s.update_network({"deny_out": [ALL_TRAFFIC], "allow_out": ["evil.test"]})
    get("evil.test")
finally:
    s.kill()
`

func TestMain(m *testing.M) {
	// Outside of the namespace, from where the package can be fetched; in it, it is there.
	if os.Geteuid() == 0 {
		if err := install(); err != nil {
			fmt.Println("skipped, the SDK cannot be installed:", err)
			return
		}
	}
	egresstest.Main(m, (*testing.M).Run)
}

func at(path string) string {
	p, _ := filepath.Abs(filepath.Join("../../..", path))
	return p
}

func install() error {
	dir := at(".cache/e2b/py-egress")
	if got, err := os.ReadFile(filepath.Join(dir, "installed")); err == nil && string(got) == sdk {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	_ = os.RemoveAll(dir)
	for _, argv := range [][]string{{"python3", "-m", "venv", dir}, {filepath.Join(dir, "bin/pip"), "install", "--quiet", "--disable-pip-version-check", sdk}} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return os.WriteFile(filepath.Join(dir, "installed"), []byte(sdk), 0o644)
}

// TestAllowedOut: a sandbox reaches what its network object allows, and what an update of it allows, and nothing else.
func TestAllowedOut(t *testing.T) {
	lab := egresstest.New(t)
	lab.DNS.Set("api.good.test", egresstest.GoodAddr)
	lab.DNS.Set("evil.test", egresstest.EvilAddr)
	for _, a := range []string{egresstest.GoodAddr, egresstest.EvilAddr} {
		lab.HTTP(a+":80", false, http.HandlerFunc(egresstest.Hello))
	}
	binary := os.Getenv("DSEC_TEST_BINARY")
	if binary == "" {
		binary = at("bin/dsec")
	}
	if err := launch.Current(binary); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "dsec-e2b-egress-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("egress:\n  resolvers: ["+egresstest.ResolverAddr+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	d, err := launch.Start(ctx, launch.Options{Binary: binary, DataDir: dir, Args: []string{"--config=" + config}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		stopped := d.Stop()
		out, err := exec.Command(binary, "down", "--data-dir", dir).CombinedOutput()
		if err = errors.Join(stopped, err); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if left := launch.Remains(dir, native.CgroupName(dir)); len(left) > 0 {
			t.Errorf("left on the machine:\n%s", strings.Join(left, "\n"))
		}
	}()
	key, err := d.Key()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, at(".cache/e2b/py-egress/bin/python"), "-c", program)
	cmd.Env = append(os.Environ(), "E2B_API_URL="+d.URL(), "E2B_SANDBOX_URL="+d.URL(), "E2B_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "api.good.test 200\nevil.test 403\nevil.test 200\n" {
		t.Errorf("%v: %s\nthe daemon's log:\n%s", err, out, d.Log())
	}
}
