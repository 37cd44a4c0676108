package api_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing/iotest"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// hostGuest is a guest without a box: it runs commands on this machine and keeps
// files below a directory. It has the semantics that the gateway relies on: ops by
// id, results that stay, streams from offsets, an end of ctx that detaches.
type hostGuest struct {
	root string

	mu      sync.Mutex
	ops     map[string]*hostOp
	changes chan guestproto.WatchEvent
	writes  int // of WriteFile
}

var _ guestclient.API = (*hostGuest)(nil)

type hostOp struct {
	req   guestproto.ExecRequest
	cmd   *exec.Cmd
	stdin io.WriteCloser
	taken int64

	mu     sync.Mutex
	out    [3][]byte
	result *guestproto.Result
	change chan struct{}
}

func newHostGuest(root string) *hostGuest {
	return &hostGuest{root: root, ops: map[string]*hostOp{}, changes: make(chan guestproto.WatchEvent, 16)}
}

func (g *hostGuest) Hello() guestproto.Hello    { return guestproto.Hello{} }
func (g *hostGuest) Ping(context.Context) error { return nil }
func (g *hostGuest) Close() error               { return nil }
func (g *hostGuest) Done() <-chan struct{}      { return nil }

// start starts an op, or finds it by its id.
func (g *hostGuest) start(req guestproto.ExecRequest) (*hostOp, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if op := g.ops[req.OpID]; op != nil {
		if fmt.Sprint(op.req) != fmt.Sprint(req) {
			return nil, errdefs.Userf(errdefs.IdempotencyClash, "op "+req.OpID, "use a new id", "it was another command")
		}
		return op, nil
	}
	argv := req.Argv
	if req.Script != "" {
		argv = []string{"/bin/sh", "-c", req.Script}
	}
	op := &hostOp{req: req, cmd: exec.Command(argv[0], argv[1:]...), change: make(chan struct{})}
	op.cmd.Dir, op.cmd.Env = g.root, append(os.Environ(), req.Env...)
	op.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	op.cmd.Stdout, op.cmd.Stderr = hostStream{op, guestproto.Stdout}, hostStream{op, guestproto.Stderr}
	switch req.StdinMode {
	case guestproto.StdinData:
		op.cmd.Stdin = bytes.NewReader(req.Stdin)
	case guestproto.StdinStream:
		op.stdin, _ = op.cmd.StdinPipe()
	}
	if err := op.cmd.Start(); err != nil {
		return nil, errdefs.Userf(errdefs.NotFound, "program "+argv[0], "install it", "cannot be started")
	}
	g.ops[req.OpID] = op
	var timedOut bool
	if req.TimeoutMs > 0 {
		time.AfterFunc(time.Duration(req.TimeoutMs)*time.Millisecond, func() {
			op.mu.Lock()
			defer op.mu.Unlock()
			if op.result == nil {
				timedOut = true
				syscall.Kill(-op.cmd.Process.Pid, syscall.SIGKILL)
			}
		})
	}
	go func() {
		op.cmd.Wait()
		op.mu.Lock()
		defer op.mu.Unlock()
		st := op.cmd.ProcessState
		op.result = &guestproto.Result{OpID: req.OpID, ExitCode: st.ExitCode(), TimedOut: timedOut,
			Stdout: guestproto.Output{Head: op.out[1], Total: int64(len(op.out[1]))}, Stderr: guestproto.Output{Head: op.out[2], Total: int64(len(op.out[2]))}}
		if ws := st.Sys().(syscall.WaitStatus); ws.Signaled() {
			op.result.Signal = "SIGKILL"
		}
		op.changed()
	}()
	return op, nil
}

// end kills what still runs and waits for it.
func (g *hostGuest) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, op := range g.ops {
		for {
			op.mu.Lock()
			res, change := op.result, op.change
			op.mu.Unlock()
			if res != nil {
				break
			}
			syscall.Kill(-op.cmd.Process.Pid, syscall.SIGKILL)
			<-change
		}
	}
}

func (o *hostOp) changed() { close(o.change); o.change = make(chan struct{}) }

type hostStream struct {
	op *hostOp
	s  guestproto.Stream
}

func (h hostStream) Write(b []byte) (int, error) {
	h.op.mu.Lock()
	defer h.op.mu.Unlock()
	h.op.out[h.s] = append(h.op.out[h.s], b...)
	h.op.changed()
	return len(b), nil
}

func (g *hostGuest) op(id string) (*hostOp, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if op := g.ops[id]; op != nil {
		return op, nil
	}
	return nil, errdefs.Userf(errdefs.OpUnknown, "op "+id, "start it", "it was never seen here")
}

func (g *hostGuest) Run(ctx context.Context, req guestproto.ExecRequest) (*guestproto.Result, error) {
	if req.Script == "panic" {
		panic("told to: secret-in-panic")
	}
	op, err := g.start(req)
	if err != nil {
		return nil, err
	}
	for {
		op.mu.Lock()
		res, change := op.result, op.change
		op.mu.Unlock()
		if res != nil || req.Background {
			if res == nil {
				res = &guestproto.Result{OpID: req.OpID}
			}
			copied := *res
			return &copied, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (g *hostGuest) Start(ctx context.Context, req guestproto.ExecRequest) (guestclient.ExecStream, error) {
	op, err := g.start(req)
	if err != nil {
		return nil, err
	}
	return newHostFollower(ctx, op, req.OpID, 0, 0), nil
}

func (g *hostGuest) Attach(ctx context.Context, id guestproto.OpID, so, se int64) (guestclient.ExecStream, error) {
	op, err := g.op(id)
	if err != nil {
		return nil, err
	}
	return newHostFollower(ctx, op, id, so, se), nil
}

type hostFollower struct {
	ctx     context.Context
	cancel  context.CancelFunc
	op      *hostOp
	id      string
	at      [3]int64
	started bool
	done    bool
}

func newHostFollower(ctx context.Context, op *hostOp, id string, so, se int64) *hostFollower {
	f := &hostFollower{op: op, id: id, at: [3]int64{0, so, se}}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

func (f *hostFollower) OpID() guestproto.OpID { return f.id }
func (f *hostFollower) Close() error          { f.cancel(); return nil }

func (f *hostFollower) Recv() (guestproto.ExecEvent, error) {
	if f.done {
		return guestproto.ExecEvent{}, io.EOF
	}
	if !f.started {
		f.started = true
		return guestproto.ExecEvent{Kind: guestproto.EventStarted, Pid: f.op.cmd.Process.Pid}, nil
	}
	for {
		f.op.mu.Lock()
		for s := guestproto.Stdout; s <= guestproto.Stderr; s++ {
			if rest := f.op.out[s][f.at[s]:]; len(rest) > 0 {
				ev := guestproto.ExecEvent{Kind: guestproto.EventOutput, Stream: s, Offset: f.at[s], Data: bytes.Clone(rest)}
				f.at[s] += int64(len(rest))
				f.op.mu.Unlock()
				return ev, nil
			}
		}
		res, change := f.op.result, f.op.change
		f.op.mu.Unlock()
		if res != nil {
			f.done = true
			told := *res // the bytes came as events
			told.Stdout.Head, told.Stderr.Head = nil, nil
			return guestproto.ExecEvent{Kind: guestproto.EventExit, Result: &told}, nil
		}
		select {
		case <-change:
		case <-f.ctx.Done():
			return guestproto.ExecEvent{}, f.ctx.Err()
		}
	}
}

func (g *hostGuest) Get(_ context.Context, id guestproto.OpID) (*guestproto.OpInfo, error) {
	op, err := g.op(id)
	if err != nil {
		return nil, err
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	return &guestproto.OpInfo{OpID: id, Argv: op.req.Argv, Running: op.result == nil, Pid: op.cmd.Process.Pid, StartedUnix: 1}, nil
}

func (g *hostGuest) List(ctx context.Context) ([]guestproto.OpInfo, error) {
	var out []guestproto.OpInfo
	g.mu.Lock()
	ids := []string{}
	for id := range g.ops {
		ids = append(ids, id)
	}
	g.mu.Unlock()
	for _, id := range ids {
		if info, err := g.Get(ctx, id); err == nil {
			out = append(out, *info)
		}
	}
	return out, nil
}

func (g *hostGuest) WriteStdin(_ context.Context, id guestproto.OpID, offset int64, data []byte, eof bool) (int64, error) {
	op, err := g.op(id)
	if err != nil {
		return 0, err
	}
	if skip := op.taken - offset; skip > 0 {
		data = data[min(skip, int64(len(data))):]
	}
	n, _ := op.stdin.Write(data)
	op.taken += int64(n)
	if eof {
		op.stdin.Close()
	}
	return op.taken, nil
}

func (g *hostGuest) Resize(_ context.Context, id guestproto.OpID, _, _ uint16) error {
	_, err := g.op(id)
	return err
}

func (g *hostGuest) Signal(_ context.Context, id guestproto.OpID, _ string, _ bool) error {
	op, err := g.op(id)
	if err != nil {
		return err
	}
	return syscall.Kill(-op.cmd.Process.Pid, syscall.SIGKILL)
}

func (g *hostGuest) CloseShell(context.Context, string) error { return nil }

// host puts a path below the root, so that .. stays inside as in a box.
func (g *hostGuest) host(path string) string { return filepath.Join(g.root, filepath.Clean("/"+path)) }

func fileError(path string, err error) error {
	r := errdefs.InvalidArgument
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r = errdefs.NotFound
	case errors.Is(err, fs.ErrExist):
		r = errdefs.AlreadyExists
	}
	return errdefs.Userf(r, "file "+path, "check the path", "%s", err.(*fs.PathError).Err)
}

func hostInfo(path string, st fs.FileInfo) *guestproto.FileInfo {
	info := &guestproto.FileInfo{Path: path, Name: st.Name(), Size: st.Size(), Mode: uint32(st.Mode().Perm()), ModUnix: st.ModTime().UnixNano(), Type: guestproto.TypeFile}
	if st.IsDir() {
		info.Type = guestproto.TypeDir
	}
	return info
}

func (g *hostGuest) Stat(_ context.Context, path string, _ bool) (*guestproto.FileInfo, error) {
	st, err := os.Stat(g.host(path))
	if err != nil {
		return nil, fileError(path, err)
	}
	return hostInfo(path, st), nil
}

func (g *hostGuest) ListDir(_ context.Context, path string, _ int, fn func(guestproto.FileInfo) error) error {
	entries, err := os.ReadDir(g.host(path))
	if err != nil {
		return fileError(path, err)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			return err
		}
		if err := fn(*hostInfo(path+"/"+e.Name(), st)); err != nil {
			return err
		}
	}
	return nil
}

// zeros is a file of any size that takes no room: "/zeros/<size>".
type zeros struct{ io.Reader }

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (g *hostGuest) ReadFile(_ context.Context, path, _ string, offset, length int64) (*guestproto.FileInfo, io.ReadCloser, error) {
	if n, ok := strings.CutPrefix(path, "/zeros/"); ok {
		var size int64
		fmt.Sscan(n, &size)
		return &guestproto.FileInfo{Type: guestproto.TypeFile, Size: size}, io.NopCloser(io.LimitReader(zeros{}, size-offset)), nil
	}
	if n, ok := strings.CutPrefix(path, "/breaks/after/"); ok {
		var size int64
		fmt.Sscan(n, &size)
		broken := errdefs.Userf(errdefs.Conflict, "box", "make a new session", "its guest was tampered with")
		return &guestproto.FileInfo{Type: guestproto.TypeFile, Size: 1 << 20}, io.NopCloser(io.MultiReader(io.LimitReader(zeros{}, size), iotest.ErrReader(broken))), nil
	}
	f, err := os.Open(g.host(path))
	if err != nil {
		return nil, nil, fileError(path, err)
	}
	st, _ := f.Stat()
	f.Seek(offset, io.SeekStart)
	var r io.Reader = f
	if length >= 0 {
		r = io.LimitReader(f, length)
	}
	return hostInfo(path, st), struct {
		io.Reader
		io.Closer
	}{r, f}, nil
}

func (g *hostGuest) WriteFile(_ context.Context, o guestclient.WriteOptions, r io.Reader) (*guestproto.FileInfo, error) {
	g.mu.Lock()
	g.writes++
	g.mu.Unlock()
	if o.Path == "/null" {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 64<<10))
		if err != nil {
			return nil, err
		}
		return &guestproto.FileInfo{Path: o.Path, Size: n, Type: guestproto.TypeFile}, nil
	}
	name := g.host(o.Path)
	if o.Parents {
		os.MkdirAll(filepath.Dir(name), 0o755)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".part-")
	if err != nil {
		return nil, fileError(o.Path, err)
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, r)
	f.Close()
	if err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return nil, err
	}
	if o.Mode != 0 {
		os.Chmod(name, os.FileMode(o.Mode))
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, fileError(o.Path, err)
	}
	return hostInfo(o.Path, st), nil
}

func (g *hostGuest) Mkdir(_ context.Context, _ guestproto.OpID, path, _ string, mode uint32, parents bool) error {
	if parents {
		return os.MkdirAll(g.host(path), os.FileMode(mode))
	}
	if err := os.Mkdir(g.host(path), os.FileMode(mode)); err != nil {
		return fileError(path, err)
	}
	return nil
}

func (g *hostGuest) Move(_ context.Context, _ guestproto.OpID, from, to, _ string, _ bool) error {
	return os.Rename(g.host(from), g.host(to))
}

func (g *hostGuest) Remove(_ context.Context, _ guestproto.OpID, path, _ string, recursive bool) error {
	if recursive {
		return os.RemoveAll(g.host(path))
	}
	return os.Remove(g.host(path))
}

func (g *hostGuest) Link(_ context.Context, _ guestproto.OpID, target, path, _ string, symbolic bool) error {
	if symbolic {
		return os.Symlink(target, g.host(path))
	}
	return os.Link(g.host(target), g.host(path))
}

func (g *hostGuest) Chmod(_ context.Context, _ guestproto.OpID, path, _ string, o guestclient.ChmodOptions) error {
	if o.Mode != nil {
		return os.Chmod(g.host(path), os.FileMode(*o.Mode))
	}
	return nil
}

type hostWatcher struct {
	ctx    context.Context
	cancel context.CancelFunc
	from   chan guestproto.WatchEvent
}

func (g *hostGuest) Watch(ctx context.Context, _, _ string, _ bool) (guestclient.Watcher, error) {
	w := &hostWatcher{from: g.changes}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w, nil
}

func (w *hostWatcher) Close() error { w.cancel(); return nil }

func (w *hostWatcher) Recv() (guestproto.WatchEvent, error) {
	select {
	case ev := <-w.from:
		return ev, nil
	case <-w.ctx.Done():
		return guestproto.WatchEvent{}, w.ctx.Err()
	}
}

func (g *hostGuest) TarOut(_ context.Context, path, _ string) (io.ReadCloser, error) {
	if _, err := os.Stat(g.host(path)); err != nil {
		return nil, fileError(path, err)
	}
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		err := tw.AddFS(os.DirFS(g.host(path)))
		if err == nil {
			err = tw.Close()
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

func (g *hostGuest) TarIn(_ context.Context, _ guestproto.OpID, path, _ string, r io.Reader) (int64, error) {
	tr := tar.NewReader(r)
	var n int64
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, errdefs.Userf(errdefs.InvalidArgument, "tar", "send a tar", "%s", err)
		}
		n++
		name := g.host(path + "/" + h.Name)
		if h.Typeflag == tar.TypeDir {
			os.MkdirAll(name, 0o755)
			continue
		}
		os.MkdirAll(filepath.Dir(name), 0o755)
		data, err := io.ReadAll(tr)
		if err != nil {
			return n, err
		}
		os.WriteFile(name, data, 0o644)
	}
}

func (g *hostGuest) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, errdefs.Userf(errdefs.NotFound, "address "+addr, "listen on it", "nobody listens")
	}
	return c, nil
}
