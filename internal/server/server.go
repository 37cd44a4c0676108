// Package server composes `dsec up`: it opens the store, the runtimes, the
// templates, the node, the control plane and the gateway of one data directory, in that order,
// serves them, and closes them in the opposite order. Boxes outlive it.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/keyed"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	"github.com/dsec-platform/dsec/internal/runtime/native/seccomp"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store"
	"github.com/dsec-platform/dsec/internal/template"
	"github.com/dsec-platform/dsec/internal/version"
)

// Config of a server.
type Config struct {
	DataDir string // made if absent, 0700; one server at a time
	Listen  string // TCP address
	File    File
	NoPool  bool // no box is made ahead of demand
	// Domain is what E2B's SDKs are told as the domain of sandboxes, for requests to their ports. The
	// operator points its names at this server; empty: localhost, with the port of Listen.
	Domain string
	// Grace is how long requests that run at the end may take; default 10 s.
	Grace  time.Duration
	Logger *slog.Logger
	// Notify is told in a sentence what the operator should see at a first start.
	Notify func(string)
}

// heapFloor keeps the collector from running for every few creates while the
// heap is small: it counts as live but is never touched, so it costs no memory of its
// own and lets garbage grow by as much. It saved 0.4 ms of CPU a create.
const heapFloor = 24 << 20

// Run serves until ctx ends, then stops gracefully: creates are refused,
// running requests get the grace, boxes and their ops go on and are adopted by the next Run.
func Run(ctx context.Context, c Config) (err error) {
	begun := time.Now()
	floor := make([]byte, heapFloor)
	defer goruntime.KeepAlive(floor)
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	relaxTimers(c.Logger)
	s := &server{cfg: c, log: c.Logger}
	defer func() { err = errors.Join(err, s.close()) }()
	// The address first: when it is taken, nothing is made. Early callers wait in its queue.
	tcp, err := listen(ctx, c.Listen)
	if err != nil {
		return errdefs.Userf(errdefs.Conflict, "address "+c.Listen, "choose another with --listen", "%w", err)
	}
	s.onClose(closed(tcp))
	s.cfg.Listen = tcp.Addr().String()
	if err := s.open(ctx); err != nil {
		return err
	}
	socket, err := s.socket()
	if err != nil {
		return err
	}
	listeners := []net.Listener{tcp, socket}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- s.api.Server().Serve(l) }()
	}
	s.api.SetReady()
	s.log.Info("ready", "url", "http://"+listeners[0].Addr().String(), "socket", s.path("dsec.sock"), "took", time.Since(begun).Round(time.Millisecond))
	select {
	case <-ctx.Done():
		s.log.Info("stopping; boxes go on", "grace", c.Grace)
	case err = <-failed:
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Grace)
	defer cancel()
	if e := s.api.Shutdown(grace); e != nil && !errors.Is(e, context.DeadlineExceeded) {
		err = errors.Join(err, e)
	}
	return err
}

type server struct {
	cfg     Config
	log     *slog.Logger
	closers []func() error // closed last first
	api     *api.API
}

func (s *server) path(name string) string { return filepath.Join(s.cfg.DataDir, name) }

func (s *server) onClose(f func() error) { s.closers = append(s.closers, f) }

func (s *server) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *server) open(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errdefs.Policyf(errdefs.Forbidden, "dsec up", "run it as root", "boxes are made by root (their own root is nobody on the host)")
	}
	release, err := Lock(s.cfg.DataDir)
	if err != nil {
		return err
	}
	s.onClose(release)
	sched := spec.ResolveScheduler(s.cfg.File.Scheduler)
	if s.cfg.NoPool {
		sched.SandboxPool = spec.Pool{}
	}
	findings, err := spec.CheckScheduler(&sched)
	if err != nil {
		return err
	}
	for _, f := range findings {
		s.log.Warn("configuration", "finding", f.String())
	}
	// Uploads that a killed server left half-way are of no use.
	if err := errors.Join(os.RemoveAll(s.path("spool")), os.Mkdir(s.path("spool"), 0o700)); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	rt, err := native.New(native.Options{DataDir: s.cfg.DataDir, Log: s.log})
	if err != nil {
		return err
	}
	s.onClose(rt.Close)
	builder := &Builder{Runtime: rt}
	templates, err := template.Open(s.cfg.DataDir, template.Options{Builder: builder, Log: s.log,
		Registries: s.cfg.File.registries()})
	if err != nil {
		return err
	}
	made, base, err := templates.EnsureBase(ctx)
	if err != nil {
		return err
	}
	if made {
		s.notify("template base is a read-only view of this host's own programs and libraries (%s); import one with `dsec template import`", base.Ref())
	}
	way, err := s.egress(registry)
	if err != nil {
		return err
	}
	n, err := node.New(node.Config{
		Egress: way.network, Proxied: way.proxy != "",
		DataDir: s.cfg.DataDir, Runtimes: map[string]runtime.Runtime{rt.Name(): rt}, Logger: s.log, Scheduler: sched,
		ReserveMemory: int64(s.cfg.File.ReserveMemory), Metrics: registry,
		Hold: func(ctx context.Context, ref string) (func(), error) {
			_, _, release, err := templates.Resolve(ctx, ref)
			return release, err
		},
	})
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, s.path("dsec.db"))
	if err != nil {
		return err
	}
	s.onClose(db.Close)
	if err := n.Start(ctx); err != nil {
		return err
	}
	s.onClose(n.Close)
	builder.Lend, builder.Memory = n.Lend, n.Capacity()/2
	shared := pooledTemplates{templates, n}
	builds, err := build.Open(build.Config{Dir: s.path("builds"), Templates: shared, Importer: templates, Logger: s.log})
	if err != nil {
		return err
	}
	s.onClose(builds.Close)
	ctl := control.New(control.Config{Store: db, Node: n, Templates: shared, Scheduler: sched, DataMounts: s.cfg.File.DataMounts, Logger: s.log, Networks: way.site, Proxy: way.proxy,
		KeepEnded: time.Duration(min(s.cfg.File.KeepSessionsDays, 36_500)) * 24 * time.Hour})
	if err := ctl.Start(ctx); err != nil {
		return err
	}
	s.onClose(func() error { ctl.Close(); return nil })
	registry.MustRegister(ctl.Collector())
	if !s.cfg.NoPool {
		if err := s.warm(ctx, n, shared); err != nil {
			return err
		}
	}
	keys, err := control.NewKeyring(ctx, db, time.Now)
	if err != nil {
		return err
	}
	if err := s.firstKey(ctx, keys); err != nil {
		return err
	}
	digests, err := keyed.Open(s.path(keyed.Name))
	if err != nil {
		return err
	}
	facade, err := s.facade(ctl, builds)
	if err != nil {
		return err
	}
	s.api = api.New(api.Config{
		Control: ctl, Keys: keys, Leases: ctl, Deadlines: ctl, Templates: shared, Named: named(builds), Hidden: hidden(builds), Owner: owner(builds), Importer: templates, NodeAPI: n, SpoolDir: s.path("spool"),
		Registry: registry, Logger: s.log, Version: version.Version, Runtimes: []string{rt.Name()}, Seccomp: seccomp.Lint,
		Facade: facade, Decisions: way.trail, Digests: digests,
	})
	return nil
}

func (s *server) notify(format string, args ...any) {
	if s.cfg.Notify != nil {
		s.cfg.Notify(fmt.Sprintf(format, args...))
	}
}

// closed closes a listener that a server may have closed already.
// addressPatience is how long a taken address is tried again: the child that a killed daemon
// was about to start holds it until it has executed its program.
const addressPatience = 2 * time.Second

func listen(ctx context.Context, address string) (net.Listener, error) {
	for end := time.Now().Add(addressPatience); ; {
		l, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func closed(l net.Listener) func() error {
	return func() error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// socket is what host root uses without a key.
func (s *server) socket() (net.Listener, error) {
	path := s.path("dsec.sock")
	_ = os.Remove(path) // of a server that was killed; the lock says that none lives
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s.onClose(closed(l))
	return l, os.Chmod(path, 0o600)
}

// firstKey makes the first key at a first start and keeps it in DIR/api-key.
func (s *server) firstKey(ctx context.Context, keys control.Keys) error {
	file := s.path("api-key")
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	list, err := keys.ListKeys(ctx, control.DefaultProject)
	if err != nil || len(list) > 0 {
		return err // the operator removed the file, which is right
	}
	_, secret, err := keys.CreateKey(ctx, control.DefaultProject, "first")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		return err
	}
	s.notify("first API key of project %s: %s (also in %s; `dsec key` makes more)", control.DefaultProject, secret, file)
	return nil
}
