package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/cli"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	"github.com/dsec-platform/dsec/internal/runtime/native/seccomp"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
	"github.com/dsec-platform/dsec/internal/version"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// Local makes a box in this process: the same node and runtime as a server's, without
// SQL and HTTP, in a directory of its own below the data directory, whose templates it shares.
// What a killed predecessor left there is removed first.
func Local(ctx context.Context, o cli.LocalOptions) (_ guestclient.API, _ func() error, err error) {
	if os.Geteuid() != 0 {
		return nil, nil, errdefs.Policyf(errdefs.Forbidden, "dsec run", "run it as root, or start a server with `dsec up`", "boxes are made by root")
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	var undo []func() error
	done := func() error { return runBackwards(undo) }
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	templates, err := template.Open(o.DataDir, template.Options{Log: quiet})
	if err != nil {
		return nil, nil, err
	}
	if o.Template == "" || o.Template == "base" {
		if _, _, err := templates.EnsureBase(ctx); err != nil {
			return nil, nil, err
		}
	}
	tpl, root, release, err := templates.Resolve(ctx, o.Template)
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, func() error { release(); return nil })
	resolved := spec.Resolve(tpl.Spec, o.Spec)
	if _, err := spec.Check(&resolved, "native"); err != nil {
		return nil, nil, err
	}
	if root.HostView && !resolved.ReadOnlyRoot() {
		return nil, nil, errdefs.Userf(errdefs.InvalidArgument, "field fs.rootfs.readonly", "use an imported template (dsec template import)", "the template base is a view of the host and cannot have a writable root")
	}
	rt, undoRuntime, err := localRuntime(ctx, o.DataDir)
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, undoRuntime...)
	n, err := node.New(node.Config{DataDir: localDir(o.DataDir), Runtimes: map[string]runtime.Runtime{rt.Name(): rt}, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	if err := n.Start(ctx); err != nil {
		return nil, nil, err
	}
	undo = append(undo, n.Close)
	req := node.CreateRequest{
		Session: "local", Version: 1, Project: "local", Root: root, RootWritable: !resolved.ReadOnlyRoot(),
		Claim: resolved.Claim(), CodeDir: cmp.Or(o.CodeDir, "/workspace"), MaxRuntime: 0, Runtime: resolved.Runtime, NoPool: true,
	}
	req.Claim.Env = append(append([]string{}, tpl.Env...), environ(o.Env, o.Secrets)...)
	if o.Code != nil {
		req.Code = bytes.NewReader(o.Code)
	}
	if _, err := n.Create(ctx, req); err != nil {
		return nil, nil, err
	}
	undo = append(undo, func() error { return n.Destroy(context.WithoutCancel(ctx), "local", "done") })
	guest, free, err := n.Acquire(ctx, "local")
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, func() error { free(); return nil })
	return guest, done, nil
}

func localDir(dataDir string) string {
	return filepath.Join(dataDir, "local", strconv.Itoa(os.Getpid()))
}

// localRuntime makes a runtime in this process's own directory, after removing
// what killed predecessors left.
func localRuntime(ctx context.Context, dataDir string) (_ runtime.Runtime, undo []func() error, err error) {
	dir := localDir(dataDir)
	sweepLocal(ctx, filepath.Dir(dir))
	unlock, err := Lock(dir)
	if err != nil {
		return nil, nil, err
	}
	undo = append(undo, func() error { return errors.Join(os.RemoveAll(dir), unlock()) })
	rt, err := native.New(native.Options{DataDir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, nil, errors.Join(err, runBackwards(undo))
	}
	return rt, append(undo, rt.Close), nil
}

// runBackwards undoes, last first.
func runBackwards(undo []func() error) error {
	var errs []error
	for i := len(undo) - 1; i >= 0; i-- {
		errs = append(errs, undo[i]())
	}
	return errors.Join(errs...)
}

func environ(maps ...map[string]string) (env []string) {
	for _, m := range maps {
		for k, v := range m {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// sweepLocal removes boxes of local runs that were killed: their locks are free.
func sweepLocal(ctx context.Context, parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		if _, err := Down(ctx, dir); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
}

// openTemplates serves the templates of a data directory on a socket of this
// process, so that the command line speaks to them as it does to a server's.
func openTemplates(dataDir string) (*dsec.Client, func() error, error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, nil, err
	}
	builder := &lazyBuilder{dataDir: dataDir}
	templates, err := template.Open(dataDir, template.Options{Builder: builder, Log: quiet})
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "dsec-templates-")
	if err != nil {
		return nil, nil, err
	}
	sock := filepath.Join(dir, "sock")
	l, err := net.Listen("unix", sock)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	a := api.New(api.Config{Templates: templates, Importer: templates, SpoolDir: dir, Logger: quiet, Version: version.Version})
	go func() { _ = a.Server().Serve(l) }()
	a.SetReady()
	c, err := dsec.New(dsec.Options{URL: "unix://" + sock})
	done := func() error {
		return errors.Join(a.Shutdown(context.Background()), builder.close(), os.RemoveAll(dir))
	}
	return c, done, err
}

// lazyBuilder makes a runtime when the first init step needs one.
type lazyBuilder struct {
	dataDir string
	mu      sync.Mutex
	rt      runtime.Runtime
	undo    []func() error
}

func (l *lazyBuilder) RunInBox(ctx context.Context, run template.BuildRun, collect func(string) error) error {
	rt, err := l.runtime(ctx)
	if err != nil {
		return err
	}
	return Builder{Runtime: rt}.RunInBox(ctx, run, collect)
}

func (l *lazyBuilder) StartInBox(ctx context.Context, run template.BuildRun, s template.StartCommand) error {
	rt, err := l.runtime(ctx)
	if err != nil {
		return err
	}
	return Builder{Runtime: rt}.StartInBox(ctx, run, s)
}

func (l *lazyBuilder) runtime(ctx context.Context) (runtime.Runtime, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rt != nil {
		return l.rt, nil
	}
	rt, undo, err := localRuntime(ctx, l.dataDir)
	if err != nil {
		return nil, err
	}
	l.rt, l.undo = rt, undo
	return rt, nil
}

func (l *lazyBuilder) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return runBackwards(l.undo)
}

func neverGranted() map[string]string { return seccomp.Never() }
