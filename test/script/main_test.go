// Package script drives the real binary from script files: testdata/*.txtar,
// and the command blocks of README.md and of docs/. Scripts that make boxes
// need root; bin/dsec must be built (make build).
package script

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsec-platform/dsec/internal/launch"
)

func TestMain(m *testing.M) {
	if err := launch.Current(binary()); err != nil {
		log.Print(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// binary is the dsec under test.
func binary() string {
	if b := os.Getenv("DSEC_TEST_BINARY"); b != "" {
		return b
	}
	abs, err := filepath.Abs("../../bin/dsec")
	if err != nil {
		panic(err)
	}
	return abs
}

// clean is the environment without what the caller's own server set.
var clean = []string{"DSEC_URL=", "DSEC_API_KEY=", "DSEC_DATA_DIR="}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		WorkdirRoot:        t.TempDir(), // removed also when only some scripts run
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			// Not below the work directory: a socket's path has 107 bytes.
			dir, err := os.MkdirTemp("", "dsec-script-")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = os.RemoveAll(dir) })
			bin := filepath.Join(e.WorkDir, ".bin")
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			if err := os.Symlink(binary(), filepath.Join(bin, "dsec")); err != nil {
				return err
			}
			e.Vars = append(e.Vars, clean...)
			e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			e.Setenv("DSEC_DATA_DIR", filepath.Join(dir, "data"))
			e.Setenv("REPO", repo())
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"up": cmdUp, "exits": cmdExits, "capture": cmdCapture, "json": cmdJSON, "left": cmdLeft, "eventually": cmdEventually,
		},
	})
}

func repo() string {
	abs, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return abs
}

// needs skips a test where a program is not installed.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed (scripts/deps.sh)", p)
		}
	}
}
