// Package python tests the Python client: its wheel is built and installed, and its own
// tests run against a real server. It needs root; bin/dsec must be built (make build).
package python

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

	"go.uber.org/goleak"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// server is the daemon that the tests use.
var server struct {
	*launch.Daemon
	key string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: these tests make real boxes and need root")
		return 0
	}
	if _, err := exec.LookPath("python3"); err != nil {
		fmt.Println("SKIP: there is no python3 (scripts/deps.sh installs it)")
		return 0
	}
	if err := start(); err != nil {
		log.Print(err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		log.Printf("the daemon's log:\n%s", server.Log())
	}
	if left := end(); len(left) > 0 {
		log.Printf("left on the machine:\n%s", strings.Join(left, "\n"))
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		log.Print(err)
		code = 1
	}
	return code
}

// binary is the dsec under test.
func binary() string {
	if b := os.Getenv("DSEC_TEST_BINARY"); b != "" {
		return b
	}
	return filepath.Join(repo(), "bin", "dsec")
}

func repo() string {
	abs, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return abs
}

func start() error {
	if err := launch.Current(binary()); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dsec-python-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if server.Daemon, err = launch.Start(ctx, launch.Options{Binary: binary(), DataDir: dir}); err != nil {
		return err
	}
	server.key, err = server.Key()
	return err
}

// end ends the daemon and tells what is left: sessions that a test did not end, and
// everything on the machine.
func end() (left []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := dsec.New(dsec.Options{URL: server.URL(), APIKey: server.key})
	if err != nil {
		return []string{err.Error()}
	}
	for i, err := range c.List(ctx, dsec.ListOptions{Phases: []string{dsec.Pending, dsec.Scheduled, dsec.Running, dsec.Suspended}}) {
		if err != nil {
			return []string{err.Error()}
		}
		left = append(left, "session "+i.GetId()+" "+i.GetPhase())
	}
	if _, err := c.Stop(ctx, &dsecv1.Selector{All: true}, "end of the tests"); err != nil {
		left = append(left, err.Error())
	}
	c.Close()
	if err := server.Stop(); err != nil {
		return append(left, err.Error())
	}
	if out, err := exec.Command(binary(), "down", "--data-dir", server.DataDir()).CombinedOutput(); err != nil {
		return append(left, fmt.Sprintf("down: %v: %s", err, out))
	}
	left = append(left, launch.Remains(server.DataDir(), native.CgroupName(server.DataDir()))...)
	if err := os.RemoveAll(server.DataDir()); err != nil {
		left = append(left, err.Error())
	}
	return left
}
