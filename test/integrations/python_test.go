package integrations

import (
	"errors"
	"fmt"
	"os"
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
	if err := errors.Join(installSDK(), importDebian()); err != nil {
		t.Fatal(err)
	}
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

// installSDK builds the wheel of the SDK and installs it.
var installSDK = sync.OnceValue(func() error {
	bin, err := venv()
	if err != nil {
		return err
	}
	wheels, err := os.MkdirTemp("", "dsec-wheel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(wheels)
	for _, args := range [][]string{
		{"wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels, filepath.Join(repo(), "sdk", "python")},
		{"install", "--force-reinstall", "--no-index", "--no-deps", "--find-links", wheels, "dsec"},
	} {
		cmd := exec.Command(bin, append([]string{"-m", "pip", "--quiet", "--disable-pip-version-check"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("pip %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
})

// importDebian makes the template "debian", in which agents may be root.
var importDebian = sync.OnceValue(func() error {
	rootfs, err := exec.Command(filepath.Join(repo(), "scripts", "debian-rootfs.sh")).Output()
	if err != nil {
		return fmt.Errorf("scripts/debian-rootfs.sh: %w", err)
	}
	cmd := exec.Command(binary(), "template", "import", "--name", "debian", "tar:"+strings.TrimSpace(string(rootfs)))
	cmd.Env = environ("DSEC_API_KEY=", "DSEC_URL=unix://"+server.DataDir()+"/dsec.sock") // files of the server are for root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("template import: %w\n%s", err, out)
	}
	return nil
})
