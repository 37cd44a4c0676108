// Package integrations drives the real binary with the real packages of what it
// works together with: MCP clients, Gymnasium, inspect-ai. It needs root;
// bin/dsec must be built (make build).
package integrations

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

// server is the daemon that all tests of the package use.
var server struct {
	*launch.Daemon
	key string
	c   *dsec.Client
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: these tests make real boxes and need root")
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
	dir, err := os.MkdirTemp("", "dsec-integrations-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if server.Daemon, err = launch.Start(ctx, launch.Options{Binary: binary(), DataDir: dir}); err != nil {
		return err
	}
	if server.key, err = server.Key(); err != nil {
		return err
	}
	server.c, err = dsec.New(dsec.Options{URL: server.URL(), APIKey: server.key})
	return err
}

// end ends the daemon and tells what is left: sessions that a test did not end, and
// everything on the machine.
func end() (left []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i, err := range server.c.List(ctx, dsec.ListOptions{Phases: live}) {
		if err != nil {
			return []string{err.Error()}
		}
		left = append(left, "session "+i.GetId()+" "+i.GetPhase())
	}
	if _, err := server.c.Stop(ctx, &dsecv1.Selector{All: true}, "end of the tests"); err != nil {
		return append(left, err.Error())
	}
	server.c.Close()
	if err := server.Stop(); err != nil {
		return append(left, err.Error()+"\n"+server.Log())
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

var live = []string{dsec.Pending, dsec.Scheduled, dsec.Running, dsec.Suspended}

// environ is the environment of a program that is to use the server.
func environ(more ...string) []string {
	return append(os.Environ(), append([]string{"DSEC_URL=" + server.URL(), "DSEC_API_KEY=" + server.key, "DSEC_DATA_DIR="}, more...)...)
}

// eventually waits until ok holds. The machine may be slow: it waits long.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain waited for: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// phase is where a session is now.
func phase(t *testing.T, id string) string {
	t.Helper()
	i, err := server.c.Session(id).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i.GetPhase()
}
