package guest

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// op is one exec, from its first request until it is evicted.
type op struct {
	srv    *Server
	id     string
	digest string
	info   guestproto.OpInfo // what does not change while it runs
	agent  int               // the agent's cgroup2 directory, -1: none
	leaf   *leaf
	child  child
	began  time.Time
	maxOut int64
	// killOnOutput ends the op when a stream passes maxOut.
	killOnOutput bool
	holdOutput   bool // waits for followers, however long they take
	before       events
	timer        *time.Timer
	session      *session // whose state is saved at the end
	stateFD      int      // what the shell writes; -1: none
	oldState     int      // what it reads

	started chan struct{} // closed when the start has succeeded or failed
	done    chan struct{} // closed when result is set
	idle    chan struct{} // closed when nothing works for the op any more, but for its survivors

	mu        sync.Mutex
	pumps     [2]pump
	out       [2]output
	stdin     *stdin
	tty       *os.File
	limit     guestproto.Limit
	timedOut  bool
	killed    bool
	result    *guestproto.Result // without output bytes
	followers map[*follower]struct{}
	watch     chan struct{} // closed at the next change; nil when nobody waits
	survivors bool
	settle    atomic.Bool

	users atomic.Int32 // requests that have yet to send its output or result: it is kept for them
}

// changed wakes whoever follows the op. The op's lock is held.
func (o *op) changed() {
	if o.watch != nil {
		close(o.watch)
		o.watch = nil
	}
}

// change is closed at the op's next change. The op's lock is held.
func (o *op) change() <-chan struct{} {
	if o.watch == nil {
		o.watch = make(chan struct{})
	}
	return o.watch
}

// wrote keeps what a pump has read.
func (o *op) wrote(stream int, p []byte) {
	o.mu.Lock()
	o.out[stream].write(p)
	over := o.killOnOutput && o.out[stream].total > o.maxOut && o.limit == "" && o.result == nil
	if over {
		o.limit = guestproto.LimitOutput
	}
	o.changed()
	o.mu.Unlock()
	if over {
		o.kill()
	}
}

// kill ends all processes of the op, survivors included. The lock keeps the
// leaf from being another op's meanwhile.
func (o *op) kill() {
	o.mu.Lock()
	o.killed = true
	done := o.leaf != nil && o.leaf.kill()
	over := o.settle.Load()
	o.mu.Unlock()
	if pid := int(o.child.pid.Load()); !done && !over && pid > 0 {
		killTree(pid)
	}
}

func (o *op) timeOut() {
	o.mu.Lock()
	over := o.result != nil
	if !over {
		o.timedOut = true
	}
	o.mu.Unlock()
	if !over {
		o.kill()
	}
}

// run waits for the end of a started op and sets its result.
func (o *op) run() {
	e := <-o.child.ended
	o.child.ended = nil // of no use any more, and an op is kept for long
	if o.timer != nil {
		o.timer.Stop()
	}
	o.mu.Lock()
	killed := o.killed
	o.mu.Unlock()
	if killed {
		o.awaitEmpty()
	}
	for i := range o.pumps {
		o.pumps[i].drain(o, i)
	}
	if o.session != nil {
		o.session.save(o)
	}
	r := o.makeResult(&e)
	o.mu.Lock()
	o.survivors = r.Survivors > 0
	o.mu.Unlock()
	o.finish(r)
	runtime.Gosched() // whoever awaits the result sends it first: there is one processor
	o.cleanUp()
	close(o.idle)
	o.srv.Touch()
}

// finish publishes the result.
func (o *op) finish(r *guestproto.Result) {
	o.mu.Lock()
	o.result = r
	o.info.Note = ""
	if !o.survivors {
		o.settle.Store(true)
	}
	o.changed()
	o.mu.Unlock()
	close(o.done)
}

// awaitEmpty waits until a killed tree is gone: nothing of it runs on after
// the reply. The kernel needs some time for large processes.
func (o *op) awaitEmpty() {
	for wait := time.Millisecond / 4; wait < time.Second; wait *= 2 {
		if o.leaf != nil && !o.leaf.populated() {
			return
		}
		if o.leaf == nil && len(treeOf(int(o.child.pid.Load()))) == 0 {
			return
		}
		time.Sleep(wait)
	}
}

// cleanUp gives back what an ended op held, after its reply.
func (o *op) cleanUp() {
	o.mu.Lock()
	in, tty := o.stdin, o.tty
	survivors := o.survivors
	o.mu.Unlock()
	if in != nil {
		in.close()
	}
	if o.child.pidfd > 0 {
		_ = unix.Close(o.child.pidfd)
	}
	if !survivors {
		o.release(tty)
	}
	if o.agent >= 0 {
		o.srv.leaves.spare(o.agent)
	}
}

// release gives back what survivors needed.
func (o *op) release(tty *os.File) {
	for i := range o.pumps {
		o.pumps[i].close()
	}
	if tty != nil {
		_ = tty.Close()
	}
	o.mu.Lock()
	f := o.leaf
	o.leaf = nil
	o.survivors = false
	o.settle.Store(true)
	o.mu.Unlock()
	if f != nil {
		leave := o.srv.gate.enter()
		o.srv.leaves.put(o.agent, f)
		leave()
	}
}

// checkSurvivors releases the op when its last process has ended.
func (o *op) checkSurvivors() int {
	o.mu.Lock()
	alive, f, tty, done := o.survivors, o.leaf, o.tty, o.result != nil
	o.mu.Unlock()
	if !alive || !done {
		return 0
	}
	n := countAlive(f, int(o.child.pid.Load()))
	if n == 0 {
		for i := range o.pumps {
			o.pumps[i].drain(o, i)
		}
		o.release(tty)
		o.srv.Touch()
	}
	return n
}

// countAlive is the number of living processes of an op whose leader has ended.
func countAlive(f *leaf, leader int) int {
	if f != nil {
		if !f.populated() {
			return 0
		}
		return max(len(f.pids()), 1)
	}
	if unix.Kill(-leader, 0) != nil {
		return 0
	}
	return len(treeOf(leader))
}

func (o *op) settled() bool { return o.settle.Load() && o.users.Load() == 0 }

// hold keeps o until drop is called; false means that it has just been evicted.
func (s *Server) hold(o *op) (ok bool) {
	o.users.Add(1)
	// What is still in the table now stays there, because evicting and this look are under its lock.
	if now, ok, _ := s.ops.get(o.id); ok && now == o {
		return true
	}
	o.drop()
	return false
}

func (o *op) drop() { o.users.Add(-1) }

func (o *op) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.out {
		o.out[i].free()
	}
}
