package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dsec-platform/dsec/internal/errdefs"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// DefaultDataDir is where a server keeps everything when nothing else is said.
const DefaultDataDir = "/var/lib/dsec"

// Env is what commands share: the standard streams, the global flags, and a
// client made on first use.
type Env struct {
	In       io.Reader
	Out, Err io.Writer

	hooks   Hooks
	url     string
	dataDir string
	project string
	output  string
	quiet   bool

	c    *dsec.Client
	done []func() error // run at the end
	// transport replaces the network in tests.
	transport http.RoundTripper
	// bare is set by commands whose exit code belongs to a command in a box.
	bare bool
}

func (e *Env) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&e.url, "url", "", "server, such as http://host:port or unix:///path (default $DSEC_URL, else the data directory's socket)")
	f.StringVar(&e.dataDir, "data-dir", cmp.Or(os.Getenv("DSEC_DATA_DIR"), DefaultDataDir), "the server's data directory ($DSEC_DATA_DIR)")
	f.StringVar(&e.project, "project", "", "project to act in, for root on the socket")
	f.StringVarP(&e.output, "output", "o", "table", "table or json")
	f.BoolVarP(&e.quiet, "quiet", "q", false, "no progress; lists give ids alone")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if e.output != "table" && e.output != "json" {
			return usagef("--output %s: want table or json", e.output)
		}
		return nil
	}
}

// DataDir is the data directory of the global flags.
func (e *Env) DataDir() string { return e.dataDir }

// JSON tells whether -o json was given.
func (e *Env) JSON() bool { return e.output == "json" }

// URL is the server that Client talks to.
func (e *Env) URL() string {
	return cmp.Or(e.url, os.Getenv("DSEC_URL"), "unix://"+filepath.Join(e.absDataDir(), "dsec.sock"))
}

func (e *Env) absDataDir() string {
	if abs, err := filepath.Abs(e.dataDir); err == nil {
		return abs
	}
	return e.dataDir
}

// Client gives the client of the server. It does not connect.
func (e *Env) Client() (*dsec.Client, error) {
	if e.c != nil {
		return e.c, nil
	}
	if !e.serverNamed() {
		if _, err := os.Stat(filepath.Join(e.absDataDir(), "dsec.sock")); errors.Is(err, fs.ErrPermission) {
			return nil, errdefs.Userf(errdefs.Forbidden, "directory "+e.absDataDir(), "run as root, or name the server with DSEC_URL and a key of it with DSEC_API_KEY", "only root may look into it")
		}
		err := errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "directory "+e.absDataDir(), "no server runs on it")
		err.Remedy = "start one with `dsec up`, or name one with DSEC_URL, --url or --data-dir"
		return nil, err
	}
	patience := 5 * time.Second // a server that restarts is waited for
	c, err := dsec.New(dsec.Options{URL: e.URL(), Project: e.project, Transport: e.transport, RetryFor: patience})
	if err != nil {
		return nil, err
	}
	e.c = c
	return c, nil
}

func (e *Env) close() {
	for _, f := range e.done {
		_ = f()
	}
	if e.c != nil {
		e.c.Close()
	}
}

// serverNamed tells whether the user named a server, or one listens on the data
// directory's socket.
func (e *Env) serverNamed() bool {
	if e.url != "" || os.Getenv("DSEC_URL") != "" || e.transport != nil {
		return true
	}
	_, err := os.Stat(filepath.Join(e.absDataDir(), "dsec.sock"))
	return err == nil
}

// ServerAnswers tells whether a server can be reached: a socket may be left
// over from one that was killed.
func (e *Env) ServerAnswers(ctx context.Context) bool {
	if !e.serverNamed() {
		return false
	}
	c, err := e.Client()
	if err != nil {
		return false
	}
	if e.url != "" || os.Getenv("DSEC_URL") != "" || e.transport != nil {
		return true
	}
	conn, err := dialSocket(ctx, filepath.Join(e.absDataDir(), "dsec.sock"))
	if err != nil {
		return false
	}
	conn.Close()
	return c != nil
}

// tty gives the descriptor of a stream when it is a terminal.
func tty(stream any) (int, bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd := int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// lacking is the error for a hook that this build does not have.
func lacking(what string) error {
	return errdefs.Userf(errdefs.Unsupported, what, "start a server with `dsec up`, and name it with DSEC_URL or --data-dir", "needs a server, and none answers")
}
