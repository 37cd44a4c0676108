// Package egress drives the real binary with boxes that have a way out, in a small internet of
// its own: the daemon runs in a network namespace whose uplink leads to stand-in servers. It needs root; bin/dsec
// must be built (make build).
package egress

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestMain(m *testing.M) {
	egresstest.Main(m, func(m *testing.M) int {
		if os.Geteuid() == 0 {
			if err := launch.Current(binary()); err != nil {
				fmt.Println("FAIL:", err)
				return 1
			}
		}
		return m.Run()
	})
}

func binary() string {
	if b := os.Getenv("DSEC_TEST_BINARY"); b != "" {
		return b
	}
	b, _ := filepath.Abs("../../bin/dsec")
	return b
}

// rig is a daemon in the lab.
type rig struct {
	*egresstest.Lab
	*launch.Daemon
	t *testing.T
	c *dsec.Client
}

// start starts a daemon whose egress section has more lines.
func start(t *testing.T, more ...string) *rig {
	t.Helper()
	lab := egresstest.New(t)
	dir, err := os.MkdirTemp("", "dsec-egress-")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	lines := append([]string{"egress:", "  resolvers: [" + egresstest.ResolverAddr + "]"}, more...)
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	authorities := filepath.Join(dir, "authorities.pem")
	if err := os.WriteFile(authorities, lab.CA.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := launch.Start(ctx, launch.Options{Binary: binary(), DataDir: dir, Args: []string{"--config=" + config}, Env: []string{"SSL_CERT_FILE=" + authorities}})
	if err != nil {
		_ = os.RemoveAll(dir)
		t.Fatal(err)
	}
	key, err := d.Key()
	if err != nil {
		t.Fatal(err)
	}
	c, err := dsec.New(dsec.Options{URL: d.URL(), APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Lab: lab, Daemon: d, t: t, c: c}
	t.Cleanup(r.end)
	return r
}

// end stops all and fails the test when anything is left.
func (r *rig) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := r.c.Stop(ctx, &dsec.Selector{All: true}, "end of the test"); err != nil {
		r.t.Errorf("stop: %v", err)
	}
	r.c.Close()
	if err := r.Stop(); err != nil {
		r.t.Errorf("daemon: %v", err)
	}
	if out, err := exec.Command(binary(), "down", "--data-dir", r.DataDir()).CombinedOutput(); err != nil {
		r.t.Errorf("down: %v: %s", err, out)
	}
	if left := launch.Remains(r.DataDir(), native.CgroupName(r.DataDir())); len(left) > 0 {
		r.t.Errorf("left on the machine:\n%s", strings.Join(left, "\n"))
	}
	if r.t.Failed() {
		r.t.Logf("the daemon's log:\n%s", r.Log())
	}
	_ = os.RemoveAll(r.DataDir())
}

// session makes one with this network, written as YAML.
func (r *rig) session(network string) *dsec.Session {
	r.t.Helper()
	s, err := r.try(network)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) try(network string) (*dsec.Session, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	return r.c.Create(ctx, dsec.CreateOptions{SpecYAML: "network: " + network})
}

// sh runs a script in the box and gives what it printed and its exit code.
func (r *rig) sh(s *dsec.Session, script string) (string, int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	res, err := s.Run(ctx, dsec.Command{Argv: []string{"/bin/sh", "-c", script}})
	if err != nil {
		r.t.Fatalf("%s: %v", script, err)
	}
	return string(dsec.Output(res.GetStdout())) + string(dsec.Output(res.GetStderr())), int(res.GetExitCode())
}

// cli runs dsec as a client.
func (r *rig) cli(args ...string) (string, error) {
	key, _ := r.Key()
	cmd := exec.Command(binary(), args...)
	cmd.Env = append(os.Environ(), "DSEC_URL="+r.URL(), "DSEC_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// in gives the rig to a subtest.
func (r *rig) in(t *testing.T) *rig {
	sub := *r
	sub.t = t
	return &sub
}
