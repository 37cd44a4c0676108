package guest

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// await sends an op's result when it has ended; for a background op at once.
func (s *Server) await(st *mux.Stream, o *op, background bool) error {
	if background {
		select {
		case <-o.done:
		default:
			r := &guestproto.Result{OpID: o.id, Survivors: 1}
			return st.SendMessage(&guestproto.ExecEvent{Kind: guestproto.EventExit, Pid: int(o.child.pid.Load()), Result: r}, true)
		}
	}
	select {
	case <-o.done:
	case <-st.Gone():
		return nil
	}
	o.mu.Lock()
	r := *o.result
	size := o.out[0].kept() + o.out[1].kept()
	o.fillOutput(&r, size <= guestproto.MaxInlineOutput)
	o.mu.Unlock()
	if size > guestproto.MaxInlineOutput {
		return s.follow(st, o, 0, 0)
	}
	return st.SendMessage(&guestproto.ExecEvent{Kind: guestproto.EventExit, Result: &r}, true)
}

// fillOutput sets a result's output, with or without the bytes. The op's lock is held.
func (o *op) fillOutput(r *guestproto.Result, bytes bool) {
	for i, dst := range []*guestproto.Output{&r.Stdout, &r.Stderr} {
		out := &o.out[i]
		dst.Total, dst.Dropped = out.total, out.total-out.kept()
		if bytes {
			dst.Head, dst.Tail = out.parts()
		}
	}
}

func (s *Server) attach(st *mux.Stream, r *guestproto.OpRequest) error {
	o, err := s.find(r.OpID)
	if err != nil {
		return err
	}
	if r.Offset < guestproto.FromNow || r.StderrOffset < guestproto.FromNow {
		return userError("invalid_argument", "offset", "negative", "give the offset of the first byte that is missing")
	}
	if !s.hold(o) {
		return evicted(r.OpID)
	}
	defer o.drop()
	return s.follow(st, o, r.Offset, r.StderrOffset)
}

// find gives a started op. It returns error so that a nil *WireError never
// becomes a non-nil error.
func (s *Server) find(id string) (*op, error) {
	o, ok, gone := s.ops.get(id)
	switch {
	case ok:
		<-o.started
		return o, nil
	case gone:
		return nil, evicted(id)
	}
	return nil, userError("op_unknown", "op "+clipped(id), "this box has never seen it", "check the op id")
}

const followChunk = 32 << 10

// follow sends an op's events from the offsets on, as they come, until it has ended.
func (s *Server) follow(st *mux.Stream, o *op, stdout, stderr int64) error {
	f := &follower{pos: [2]int64{stdout, stderr}, last: time.Now()}
	o.mu.Lock()
	for i := range f.pos {
		if f.pos[i] == guestproto.FromNow {
			f.pos[i] = o.out[i].total
		}
	}
	if o.followers == nil {
		o.followers = map[*follower]struct{}{}
	}
	o.followers[f] = struct{}{}
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		delete(o.followers, f)
		o.changed()
		o.mu.Unlock()
	}()
	if pid := int(o.child.pid.Load()); pid > 0 {
		if err := st.SendMessage(&guestproto.ExecEvent{Kind: guestproto.EventStarted, Pid: pid}, false); err != nil {
			return err
		}
	}
	buf := make([]byte, 0) // most followers wait most of the time
	for {
		ev, wait := o.next(f, &buf)
		if wait != nil {
			select {
			case <-wait:
				continue
			case <-st.Gone():
				return nil
			}
		}
		if err := st.SendMessage(ev, ev.Kind == guestproto.EventExit); err != nil || ev.Kind == guestproto.EventExit {
			return err
		}
		o.mu.Lock()
		f.last = time.Now()
		f.pos[ev.Stream-1] = ev.Offset + int64(len(ev.Data)) + ev.Dropped
		o.changed()
		o.mu.Unlock()
	}
}

// next gives the follower's next event, or what to wait for. It grows buf to what there is.
func (o *op) next(f *follower, buf *[]byte) (*guestproto.ExecEvent, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.out {
		pos := f.pos[i]
		if pos >= o.out[i].total {
			continue
		}
		if want := min(o.out[i].total-pos, followChunk); int64(len(*buf)) < want {
			*buf = make([]byte, want)
		}
		n, gap := o.out[i].read(pos, *buf)
		if gap > 0 {
			return &guestproto.ExecEvent{Kind: guestproto.EventGap, Stream: guestproto.Stream(i + 1), Offset: pos, Dropped: gap}, nil
		}
		return &guestproto.ExecEvent{Kind: guestproto.EventOutput, Stream: guestproto.Stream(i + 1), Offset: pos, Data: (*buf)[:n]}, nil
	}
	if o.result == nil {
		return nil, o.change()
	}
	r := *o.result
	o.fillOutput(&r, false)
	return &guestproto.ExecEvent{Kind: guestproto.EventExit, Result: &r}, nil
}

// describe is the op as a listing shows it.
func (o *op) describe() *guestproto.OpInfo {
	n := o.checkSurvivors()
	o.mu.Lock()
	defer o.mu.Unlock()
	info := o.info
	info.Pid = int(o.child.pid.Load())
	info.Running = o.result == nil
	info.Survivors = n
	if o.result != nil {
		r := *o.result
		o.fillOutput(&r, false)
		info.Result = &r
	}
	return &info
}

func (s *Server) get(st *mux.Stream, r *guestproto.OpRequest) error {
	o, err := s.find(r.OpID)
	if err != nil {
		return err
	}
	return st.SendMessage(o.describe(), true)
}

func (s *Server) list(st *mux.Stream) error {
	for _, o := range s.ops.all() {
		if err := st.SendMessage(o.describe(), false); err != nil {
			return err
		}
	}
	return st.CloseSend()
}

func (s *Server) writeStdin(st *mux.Stream, r *guestproto.OpRequest) error {
	o, err := s.find(r.OpID)
	if err != nil {
		return err
	}
	if o.stdin == nil {
		return userError("conflict", "op "+o.id, "it was started without a streamed stdin", "start it with one")
	}
	next, werr := o.stdin.write(r.Offset, r.Data, r.EOF, st.Gone())
	if werr != nil {
		return werr
	}
	return st.SendMessage(&guestproto.Reply{N: next}, true)
}

func (s *Server) resize(st *mux.Stream, r *guestproto.OpRequest) error {
	o, err := s.find(r.OpID)
	if err != nil {
		return err
	}
	if !o.info.PTY {
		return userError("conflict", "op "+o.id, "it has no terminal", "start it with a pty")
	}
	if o.tty == nil || setSize(o.tty, r.Rows, r.Cols) != nil { // nil: it could not be started, or has ended long ago
		return userError("conflict", "op "+o.id, "its terminal is closed", "resize running ops only")
	}
	return st.SendMessage(&guestproto.Reply{}, true)
}

func (s *Server) signal(st *mux.Stream, r *guestproto.OpRequest) error {
	o, err := s.find(r.OpID)
	if err != nil {
		return err
	}
	sig := signalNumber(r.Signal)
	if sig == 0 {
		return userError("invalid_argument", "signal "+clipped(r.Signal), "unknown", "send a name such as SIGTERM or a number")
	}
	if !o.send(sig, r.Tree) {
		return userError("conflict", "op "+o.id, "no process of it lives", "look at its result")
	}
	return st.SendMessage(&guestproto.Reply{}, true)
}

// send signals the op's process group or, with tree or when its leader has
// ended, every process of it.
func (o *op) send(sig unix.Signal, tree bool) bool {
	if !tree && o.child.pid.Load() > 0 && o.child.signal(sig) {
		return true
	}
	o.mu.Lock()
	f, over := o.leaf, o.result != nil && !o.survivors
	o.mu.Unlock()
	if over || o.child.pid.Load() == 0 {
		return false
	}
	if sig == unix.SIGKILL {
		o.kill()
		return true
	}
	pids := []int(nil)
	if f != nil {
		pids = f.pids()
	} else {
		pids = treeOf(int(o.child.pid.Load()))
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, sig)
	}
	return len(pids) > 0
}

func signalNumber(name string) unix.Signal {
	if sig := unix.SignalNum(name); sig != 0 {
		return sig
	}
	if sig := unix.SignalNum("SIG" + name); sig != 0 {
		return sig
	}
	if n, ok := parseIDString(name); ok && n > 0 && n <= 64 {
		return unix.Signal(n)
	}
	return 0
}

func parseIDString(s string) (uint32, bool) {
	if s == "" {
		return 0, false
	}
	return parseID([]byte(s))
}
