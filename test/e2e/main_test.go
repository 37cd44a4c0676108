// Package e2e drives the real binary: a daemon of its own, real boxes, the
// public Go client. It needs root; bin/dsec must be built (make build).
package e2e

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// shared is the daemon that most tests use; tests that kill daemons start their own.
var shared *env

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: end-to-end tests make real boxes and need root")
		return 0
	}
	if err := launch.Current(binary()); err != nil {
		log.Print(err)
		return 1
	}
	e, err := start(context.Background())
	if err != nil {
		log.Print(err)
		return 1
	}
	shared = e
	code := m.Run()
	if code != 0 {
		log.Printf("the shared daemon's log:\n%s", e.Log())
	}
	if left := e.end(); len(left) > 0 {
		log.Printf("left on the machine:\n%s", strings.Join(left, "\n"))
		code = 1
	}
	return code
}

// binary is the dsec under test.
func binary() string {
	if b := os.Getenv("DSEC_TEST_BINARY"); b != "" {
		return b
	}
	abs, _ := filepath.Abs("../../bin/dsec")
	return abs
}

// env is a daemon with a client.
type env struct {
	*launch.Daemon
	c *dsec.Client
}

func start(ctx context.Context, args ...string) (*env, error) {
	dir, err := os.MkdirTemp("", "dsec-e2e-")
	if err != nil {
		return nil, err
	}
	d, err := launch.Start(ctx, launch.Options{Binary: binary(), DataDir: dir, Args: args})
	if err != nil {
		return nil, err
	}
	key, err := d.Key()
	if err != nil {
		return nil, err
	}
	c, err := dsec.New(dsec.Options{URL: d.URL(), APIKey: key})
	return &env{d, c}, err
}

// end stops every session and the daemon and tells what is left.
func (e *env) end() []string {
	ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
	defer cancel()
	if _, err := e.c.Stop(ctx, &dsec.Selector{All: true}, "end of the tests"); err != nil {
		return []string{"stop: " + err.Error()}
	}
	if left := e.afterStop(); len(left) > 0 {
		return left
	}
	e.c.Close()
	if err := e.Stop(); err != nil {
		return []string{"daemon: " + err.Error() + "\n" + e.Log()}
	}
	// What a daemon leaves on purpose for the next one (spawner, pool) goes with its data directory.
	out, err := exec.Command(binary(), "down", "--data-dir", e.DataDir()).CombinedOutput()
	if err != nil {
		return []string{fmt.Sprintf("down: %v: %s", err, out)}
	}
	left := launch.Remains(e.DataDir(), native.CgroupName(e.DataDir()))
	if err := os.RemoveAll(e.DataDir()); err != nil {
		left = append(left, err.Error())
	}
	return left
}

// afterStop tells what is left of boxes while the daemon still runs; its pool holds boxes on purpose.
func (e *env) afterStop() []string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st, err := e.c.Nodes.GetStats(ctx, &dsecv1.GetStatsRequest{})
	switch {
	case err != nil:
		return []string{"stats: " + dsec.AsError(err).Error()}
	case st.GetBoxes() > 0 || st.GetCreating() > st.GetPoolTarget():
		return []string{fmt.Sprintf("sessions have ended, boxes have not: %v", st)}
	case st.GetPoolTarget() == 0 && st.GetPooled() == 0:
		return launch.Leftovers(e.DataDir(), native.CgroupName(e.DataDir()))
	}
	return nil
}

// startOwn gives a test its own daemon.
func startOwn(t *testing.T, args ...string) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience(30*time.Second))
	defer cancel()
	e, err := start(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", e.Log())
		}
		if left := e.end(); len(left) > 0 {
			t.Errorf("left on the machine:\n%s", strings.Join(left, "\n"))
		}
	})
	return e
}

// session makes a session that ends with the test.
func (e *env) session(t *testing.T, o dsec.CreateOptions) *dsec.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience(30*time.Second))
	defer cancel()
	s, err := e.c.Create(ctx, o)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
		defer cancel()
		if err := s.Stop(ctx, "end of the test"); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// debian imports a Debian root file system as template "debian", once.
func (e *env) debian(t *testing.T) string {
	t.Helper()
	if err := exec.Command(binary(), "--url", "unix://"+e.DataDir()+"/dsec.sock", "template", "show", "debian").Run(); err == nil {
		return "debian"
	}
	cmd := exec.Command(binary(), "--url", "unix://"+e.DataDir()+"/dsec.sock", "template", "import", "--name", "debian", "tar:"+rootfs(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return "debian"
}

// rootfs is a tar of Debian with python3; it is made once and kept.
func rootfs(t *testing.T) string {
	t.Helper()
	if f := os.Getenv("DSEC_TEST_ROOTFS"); f != "" {
		return f
	}
	out, err := exec.Command("../../scripts/debian-rootfs.sh").Output()
	if err != nil {
		t.Fatalf("scripts/debian-rootfs.sh: %v", err)
	}
	return strings.TrimSpace(string(out))
}
