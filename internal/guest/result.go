package guest

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// events are the agent's counters of limits that were hit.
type events struct{ oom, pids int64 }

func readEvents(s *setup.Settings) events {
	return events{counter(s.AgentMemory, "oom_kill"), counter(s.AgentPids, "max")}
}

// counter reads "name value" from an open cgroup file.
func counter(fd int, name string) int64 {
	if fd < 0 {
		return 0
	}
	var b [512]byte
	n, err := unix.Pread(fd, b[:], 0)
	if err != nil {
		return 0
	}
	for text := b[:n]; len(text) > 0; { // without bytes.Lines, which has b on the heap
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		k, v, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if string(k) == name {
			c, _ := strconv.ParseInt(string(v), 10, 64)
			return c
		}
	}
	return 0
}

// makeResult says how an op's command ended.
func (o *op) makeResult(e *exit) *guestproto.Result {
	r := &guestproto.Result{
		OpID:       o.id,
		WallMs:     float64(time.Since(o.began).Microseconds()) / 1000,
		UserMs:     float64(e.usage.Utime.Nano()) / 1e6,
		SysMs:      float64(e.usage.Stime.Nano()) / 1e6,
		PeakMemory: e.usage.Maxrss << 10,
		ReadBytes:  e.usage.Inblock << 9, WriteBytes: e.usage.Oublock << 9,
	}
	if e.status.Signaled() {
		r.ExitCode, r.Signal = -1, unix.SignalName(e.status.Signal())
		if r.Signal == "" {
			r.Signal = "SIG" + itoa(int(e.status.Signal()))
		}
	} else {
		r.ExitCode = e.status.ExitStatus()
	}
	r.Survivors = countAlive(o.leaf, int(o.child.pid.Load()))
	set, _ := o.srv.settings()
	now := readEvents(set)
	killed := e.status.Signaled() && e.status.Signal() == unix.SIGKILL || r.ExitCode == 137
	o.mu.Lock()
	r.TimedOut, r.Limit = o.timedOut, o.limit
	o.mu.Unlock()
	switch {
	case r.Limit != "" || r.TimedOut:
	case now.oom > o.before.oom:
		r.Limit, r.OOM = guestproto.LimitMemory, killed
	case now.pids > o.before.pids:
		r.Limit = guestproto.LimitPids
	case r.ExitCode != 0 && diskFull(set):
		r.Limit = guestproto.LimitDisk
	}
	if o.leaf != nil && (e.status.Signaled() || r.Survivors > 0) {
		// What children used counts only when somebody waited for them: the leaf knows it all.
		t := o.leaf.cpu()
		r.UserMs = max(r.UserMs, float64(t.user-o.leaf.base.user)/1000)
		r.SysMs = max(r.SysMs, float64(t.sys-o.leaf.base.sys)/1000)
	}
	return r
}

// diskFull tells whether a writable path has no space or no inode left.
func diskFull(s *setup.Settings) bool {
	for _, dir := range append([]string{"/tmp"}, s.WritableDirs...) {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Blocks > 0 && (st.Bavail == 0 || st.Files > 0 && st.Ffree == 0) {
			return true
		}
	}
	return false
}
