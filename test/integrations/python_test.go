package integrations

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The environments for trainers: Gymnasium's own checker, the vector environment beside
// Gymnasium's, the verifier against poisoned boxes, the loop of the cookbook.
func TestGym(t *testing.T) { pytest(t, "gym") }

// The sandbox provider: inspect-ai's own check of sandboxes, and an evaluation.
func TestInspect(t *testing.T) { pytest(t, "inspect") }

// pytest runs the tests of sdk/python/tests/DIR with the SDK as it is installed from its wheel.
func pytest(t *testing.T, dir string) {
	t.Parallel()
	bin := python(t)
	installSDK(t, bin)
	importDebian(t)
	cmd := exec.CommandContext(t.Context(), bin, "-m", "pytest", "-q", "--durations=3", "-p", "no:cacheprovider", "--basetemp", t.TempDir(), filepath.Join("tests", dir))
	cmd.Dir = filepath.Join(repo(), "sdk", "python")
	cmd.Env = environ("PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	t.Logf("%s", out)
	// Files that need a package which is missing are not collected: that would pass, too.
	if !strings.Contains(string(out), "passed") && !strings.Contains(string(out), "[100%]") {
		t.Errorf("nothing was tested")
	}
	if strings.Contains(string(out), "skipped") {
		t.Errorf("some tests were skipped")
	}
}

var installed, imported sync.Once

func installSDK(t *testing.T, bin string) {
	t.Helper()
	installed.Do(func() {
		wheels := t.TempDir()
		for _, args := range [][]string{
			{"wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels, filepath.Join(repo(), "sdk", "python")},
			{"install", "--force-reinstall", "--no-index", "--no-deps", "--find-links", wheels, "dsec"},
		} {
			cmd := exec.Command(bin, append([]string{"-m", "pip", "--quiet", "--disable-pip-version-check"}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("pip %s: %v\n%s", args[0], err, out)
			}
		}
	})
}

// importDebian makes the template "debian", in which agents may be root.
func importDebian(t *testing.T) {
	t.Helper()
	imported.Do(func() {
		out, err := exec.Command(filepath.Join(repo(), "scripts", "debian-rootfs.sh")).Output()
		if err != nil {
			t.Fatalf("scripts/debian-rootfs.sh: %v", err)
		}
		cmd := exec.Command(binary(), "--url", "unix://"+server.DataDir()+"/dsec.sock", "template", "import", "--name", "debian", "tar:"+strings.TrimSpace(string(out)))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}
