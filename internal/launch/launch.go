// Package launch runs a `dsec up` of its own as a child process, for the
// benches and the end-to-end tests: it starts it, waits until it is ready, kills and
// restarts it, and counts what is left on the machine afterwards.
package launch

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dsec-platform/dsec/internal/guest/sleeper"
)

// Options of a daemon.
type Options struct {
	Binary  string // of dsec; empty: this program's own
	DataDir string // must exist
	Args    []string
	Env     []string // added to the environment
	LogFile string   // its standard error is appended here; empty: kept in memory, see Log
}

// Daemon is a running `dsec up`. Methods are not safe for concurrent use, but
// for URL, Key and DataDir.
type Daemon struct {
	opts Options
	addr string
	cmd  *exec.Cmd
	exit chan error // gives cmd's end once
	log  *buffer
	// Ready is how long the last start took, from fork to GET /healthz answering 200.
	Ready time.Duration
}

// Start starts a daemon on a free port of the loopback and waits until it is ready.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		o.Binary = self
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d := &Daemon{opts: o, addr: addr, log: &buffer{}}
	return d, d.Restart(ctx)
}

// freeAddress gives a free address of the loopback whose port the kernel gives to no
// client (it takes those from 32768 up): while the daemon is down, one that tries to reach
// it could else get that very port for its own end, and keep the daemon from coming back.
func freeAddress() (string, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", err
}

// Restart starts the daemon again, on the same port and data directory, after Kill or Stop.
func (d *Daemon) Restart(ctx context.Context) error {
	args := append([]string{"up", "--data-dir", d.opts.DataDir, "--listen", d.addr}, d.opts.Args...)
	cmd := exec.Command(d.opts.Binary, args...)
	cmd.Env = append(os.Environ(), d.opts.Env...)
	cmd.Stderr = d.log
	if d.opts.LogFile != "" {
		f, err := os.OpenFile(d.opts.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		cmd.Stderr = f
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd, d.exit = cmd, make(chan error, 1)
	go func() { d.exit <- cmd.Wait() }()
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	for wait := time.Millisecond; ; wait = min(wait*2, 20*time.Millisecond) {
		if res, err := client.Get(d.URL() + "/healthz"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				d.Ready = time.Since(start)
				return nil
			}
		}
		select {
		case err := <-d.exit:
			d.cmd = nil
			return fmt.Errorf("dsec up ended before it was ready: %v\n%s", err, d.Log())
		case <-ctx.Done():
			d.Kill()
			return fmt.Errorf("dsec up is not ready: %w\n%s", ctx.Err(), d.Log())
		case <-time.After(wait):
		}
	}
}

// Kill kills the daemon with SIGKILL and waits for its end. Boxes live on.
func (d *Daemon) Kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		<-d.exit
		d.cmd = nil
	}
}

// Stop ends the daemon with SIGTERM and waits for its end. Boxes live on.
func (d *Daemon) Stop() error {
	if d.cmd == nil {
		return nil
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	err := <-d.exit
	d.cmd = nil
	return err
}

// URL of its API.
func (d *Daemon) URL() string { return "http://" + d.addr }

// DataDir is its data directory.
func (d *Daemon) DataDir() string { return d.opts.DataDir }

// Pid of the daemon; 0 when it does not run.
func (d *Daemon) Pid() int {
	if d.cmd == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

// Key is the first API key, which the daemon wrote at its first start.
func (d *Daemon) Key() (string, error) {
	b, err := os.ReadFile(filepath.Join(d.opts.DataDir, "api-key"))
	return strings.TrimSpace(string(b)), err
}

// Log is the end of what the daemon printed.
func (d *Daemon) Log() string { return d.log.String() }

// Processes lists processes whose command line names the data directory:
// daemon, spawner ("dsec-spawner"), and the guests of live boxes ("dsec-guest"), with their names.
func Processes(dataDir string) map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := sleeper.Program(pid)
		if err != nil {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.HasPrefix(exe, dataDir+"/") || bytes.Contains(cmdline, []byte(dataDir)) {
			found[pid] = program(filepath.Base(exe))
		}
	}
	return found
}

// program is a file's name without the digest that the daemon adds to what it embeds.
func program(file string) string {
	for _, name := range []string{"dsec-guest", "dsec-spawner"} {
		if file == name || strings.HasPrefix(file, name+"-") {
			return name
		}
	}
	return file
}

// buffer keeps the last 64 KiB.
type buffer struct {
	mu sync.Mutex
	b  []byte
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	if over := len(b.b) - 64<<10; over > 0 {
		b.b = append([]byte(nil), b.b[over:]...)
	}
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}
