package guest

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/spawn"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// exec serves KindExec: it starts the op, or attaches to the one with this id.
func (s *Server) exec(st *mux.Stream, body []byte) error {
	var open guestproto.ExecOpen
	if err := guestproto.Unmarshal(body, &open); err != nil {
		return badRequest(err)
	}
	if open.StdinFollows > 0 {
		free, err := s.readStdin(st, &open)
		if err != nil {
			return err
		}
		defer free()
	}
	o, err := s.begin(&open)
	if err != nil {
		return err
	}
	defer o.drop()
	if !open.Follow {
		return s.await(st, o, open.Req.Background)
	}
	return s.follow(st, o, 0, 0)
}

// readStdin takes input that is too large for the request's frame. The op does
// not start before all of it is there: a connection lost half-way leaves nothing.
func (s *Server) readStdin(st *mux.Stream, open *guestproto.ExecOpen) (free func(), err error) {
	n := open.StdinFollows
	if n > guestproto.MaxStdin {
		return nil, limitError("too_large", "stdin", "more than 8 MiB was given whole", "stream it instead")
	}
	if !s.budget.reserve(int(n)) {
		return nil, limitError("too_large", "stdin", "the guest has no room for it now", "stream it instead, or try again later")
	}
	free = func() { s.budget.release(int(n)) }
	data := make([]byte, n)
	if _, err := io.ReadFull(st, data); err != nil {
		free()
		return nil, err
	}
	open.Req.Stdin = data
	return free, nil
}

// begin makes sure that the op of this id has been started exactly once. The caller drops it.
func (s *Server) begin(open *guestproto.ExecOpen) (*op, *guestproto.WireError) {
	set, werr := s.settings()
	if werr != nil {
		return nil, werr
	}
	l, werr := check(&open.Req, set)
	if werr != nil {
		return nil, werr
	}
	r := &open.Req
	o := s.newOp(open, l)
	o.users.Store(1)
	have, created, gone, full := s.ops.add(o.id, o)
	switch {
	case gone:
		return nil, evicted(o.id)
	case full:
		return nil, limitError("rate_limited", "box", "too many ops are running", "wait for some to end")
	case !created && have.digest != o.digest:
		return nil, userError("idempotency_clash", "op "+o.id, "another request has this id", "use a new op id")
	case !created && !s.hold(have):
		return nil, evicted(o.id)
	case !created:
		<-have.started
		return have, nil
	}
	s.launch(o, l, r)
	close(o.started)
	return o, nil
}

// newOp is not inlined: begin's frame is below the whole start.
//
//go:noinline
func (s *Server) newOp(open *guestproto.ExecOpen, l *launch) *op {
	r := &open.Req
	o := &op{
		srv: s, id: r.OpID, digest: string(open.Digest), agent: l.settings.AgentCgroup,
		began: time.Now(), maxOut: l.maxOut, killOnOutput: r.KillOnOutputLimit, holdOutput: r.HoldOutput, stateFD: -1, oldState: -1,
		started: make(chan struct{}), done: make(chan struct{}), idle: make(chan struct{}),
	}
	o.info = guestproto.OpInfo{
		OpID: o.id, Argv: shown(r), ShellSession: r.ShellSession, User: l.user.name, Cwd: l.dir,
		PTY: r.PTY, Background: r.Background, StartedUnix: o.began.UnixNano(),
		Note: r.Note,
	}
	for i := range o.out {
		o.out[i] = output{budget: s.budget, half: int(max(l.maxOut/2, 1))}
	}
	return o
}

// maxShown bounds what is kept of a command line.
const maxShown = 4 << 10

func evicted(id string) *guestproto.WireError {
	return userError("op_unknown", "op "+clipped(id), "it ran, but its result is no longer kept", "fetch results sooner, or use a new op id to run it again")
}

// shown is the command line that a listing shows; the rest of it is not kept.
func shown(r *guestproto.ExecRequest) []string {
	argv := r.Argv
	if r.Script != "" {
		argv = []string{r.Script}
	}
	left := maxShown
	var list []string
	for _, a := range argv {
		if left <= 0 {
			break
		}
		list = append(list, string([]byte(a[:min(len(a), 1024, left)])))
		left -= len(a) + 16
	}
	return list
}

// launch starts the command. A failure is the op's result, too.
func (s *Server) launch(o *op, l *launch, r *guestproto.ExecRequest) {
	if r.TimeoutMs > 0 { // before the start: the agent may hold that up, too
		o.timer = time.AfterFunc(time.Duration(r.TimeoutMs)*time.Millisecond, o.timeOut)
	}
	err := s.prepareAndStart(o, l, r)
	if err == nil {
		o.mu.Lock()
		killed := o.killed
		o.mu.Unlock()
		if killed { // before there was anything to kill
			o.kill()
		}
		go func() {
			growStack(0) // now, not between the command's end and the reply
			o.run()
		}()
		return
	}
	if o.timer != nil {
		o.timer.Stop()
	}
	w, ok := err.(*guestproto.WireError)
	if !ok {
		w = startError(err, l)
	}
	for i := range o.pumps {
		o.pumps[i].close()
	}
	if o.stdin != nil {
		o.stdin.close()
	}
	closeFD(o.stateFD)
	o.finish(&guestproto.Result{OpID: o.id, ExitCode: -1, Error: w})
	if o.tty != nil {
		_ = o.tty.Close()
	}
	go func() {
		if o.child.pid.Load() != 0 { // it is dying, and still in the leaf
			<-o.child.ended
		}
		o.release(nil)
		close(o.idle)
		s.Touch()
	}()
}

func (s *Server) prepareAndStart(o *op, l *launch, r *guestproto.ExecRequest) error {
	var theirs []int  // the command's ends, closed here once it has them
	var outputs []int // ours, until pumps have them
	defer func() {
		for _, fd := range append(theirs, outputs...) {
			_ = unix.Close(fd)
		}
	}()
	give := func(fd, to int) spawn.File {
		theirs = append(theirs, fd)
		return spawn.File{From: fd, To: to}
	}
	if r.ShellSession != "" {
		err := s.enterSession(o, l, r)
		if o.oldState >= 0 {
			theirs = append(theirs, o.oldState)
		}
		if err != nil {
			return err
		}
	}
	defer s.gate.enter()()
	if o.agent >= 0 {
		f := s.leaves.get(o.agent)
		o.mu.Lock()
		o.leaf = f
		o.mu.Unlock()
	}
	spec := l.spec(o)
	if l.script != "" {
		fd, err := memfd("script", l.script)
		if err != nil {
			return err
		}
		spec.Files = append(spec.Files, give(fd, scriptFD))
	}
	if o.stateFD >= 0 {
		spec.Files = append(spec.Files, spawn.File{From: o.oldState, To: oldStateFD}, spawn.File{From: o.stateFD, To: stateFD})
	}
	owner := int(l.user.uid)
	if spec.Cred == nil {
		owner = 0
	}
	if r.PTY {
		slave, err := openTTY(o, r, owner)
		if err != nil {
			return err
		}
		for i := range 3 {
			spec.Files = append(spec.Files, spawn.File{From: slave, To: i})
		}
		theirs = append(theirs, slave)
		spec.TTY = true
	} else {
		in, feeder, err := inputFor(r.StdinMode, r.Stdin, owner)
		if err != nil {
			return err
		}
		o.stdin = feeder
		spec.Files = append(spec.Files, give(in, 0))
		for i := range 2 {
			w, read, err := pipe(false, owner)
			if err != nil {
				return err
			}
			outputs = append(outputs, read)
			spec.Files = append(spec.Files, give(w, 1+i))
		}
	}
	o.before = readEvents(l.settings)
	if err := s.reaper.start(spec, &o.child); err != nil {
		return err
	}
	for i, fd := range outputs { // not before: the command is on its way while the poller gets to know them
		o.pumps[i].file = os.NewFile(uintptr(fd), "pipe")
	}
	outputs = nil
	o.feed(r)
	return nil
}

// feed starts what moves the op's bytes.
func (o *op) feed(r *guestproto.ExecRequest) {
	if o.stdin != nil {
		if r.StdinMode == guestproto.StdinData {
			o.stdin.give(r.Stdin)
		} else {
			go o.stdin.run()
		}
	}
	for i := range o.pumps {
		if o.pumps[i].file != nil {
			go o.pumps[i].run(o, i)
		}
	}
}

// memfd makes an anonymous file; the box's file tree never sees it.
func memfd(name, content string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for b := []byte(content); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
		b = b[n:]
	}
	_, err = unix.Seek(fd, 0, io.SeekStart)
	return fd, err
}
