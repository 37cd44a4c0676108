package spawn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime/native/seccomp"
)

// run starts a spec with its output on a pipe and gives the output and status.
func run(t testing.TB, s *Spec) (string, syscall.WaitStatus) {
	t.Helper()
	return runBy(t, s, Start)
}

func runBy(t testing.TB, s *Spec, start func(*Spec) (int, error)) (string, syscall.WaitStatus) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s.Files = append(s.Files, File{int(null.Fd()), 0}, File{int(w.Fd()), 1}, File{int(w.Fd()), 2})
	s.Pid = new(atomic.Int32)
	fd, err := start(s)
	w.Close()
	if err != nil {
		if s.Pid.Load() != 0 {
			_, _ = syscall.Wait4(int(s.Pid.Load()), nil, 0, nil)
		}
		t.Fatal(err)
	}
	defer unix.Close(fd)
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(int(s.Pid.Load()), &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
	return string(out), ws
}

func sh(script string) *Spec {
	return &Spec{Paths: []string{"/nonexistent/sh", "/bin/sh"}, Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "A=b"}}
}

func TestStart(t *testing.T) {
	s := sh(`echo $A; pwd; ls /proc/self/fd | wc -l; exit 3`)
	s.Dir = "/usr"
	out, ws := run(t, s)
	if out != "b\n/usr\n4\n" || ws.ExitStatus() != 3 {
		t.Errorf("got %q, status %d", out, ws.ExitStatus())
	}
}

// WaitAny leaves the zombie to the caller, and lets the others run meanwhile.
func TestWaitAny(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var info [128]byte
	if err := WaitAny(&info); err != unix.ECHILD {
		t.Fatalf("without a child: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := sh("read x; exit 3")
	s.Files = []File{{int(r.Fd()), 0}}
	s.Pid = new(atomic.Int32)
	fd, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	go w.Close() // runs when this goroutine waits: the child ends then
	if err := WaitAny(&info); err != nil {
		t.Fatal(err)
	}
	if pid := int32(binary.NativeEndian.Uint32(info[16:])); pid != s.Pid.Load() {
		t.Errorf("pid %d, not %d", pid, s.Pid.Load())
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(int(s.Pid.Load()), &ws, syscall.WNOHANG, nil); err != nil || ws.ExitStatus() != 3 {
		t.Errorf("status %d, %v", ws.ExitStatus(), err)
	}
}

func TestSessionAndSignalState(t *testing.T) {
	out, _ := run(t, sh(`cat /proc/self/status; [ $(cut -d' ' -f 6 /proc/$$/stat) = $$ ] && echo leader`))
	if !strings.Contains(out, "SigBlk:\t0000000000000000") || !strings.Contains(out, "SigCgt:\t0000000000000000") || !strings.Contains(out, "leader") {
		t.Error(out)
	}
}

func TestDescriptorsOverlap(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := sh(`ls /proc/self/fd | tr '\n' ' '; echo x >&9`)
	s.Files = []File{{int(w.Fd()), 9}}
	out, _ := run(t, s)
	w.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != "x\n" {
		t.Errorf("fd 9 got %q, %v", got, err)
	}
	if out != "0 1 2 3 9 " {
		t.Errorf("open: %q", out)
	}
}

func TestFailures(t *testing.T) {
	tests := map[string]struct {
		spec *Spec
		step Step
		want syscall.Errno
	}{
		"program": {&Spec{Paths: []string{"/nonexistent"}, Argv: []string{"x"}}, StepExec, unix.ENOENT},
		"access":  {&Spec{Paths: []string{"/nonexistent", "/etc/passwd"}, Argv: []string{"x"}}, StepExec, unix.EACCES},
		"cwd":     {&Spec{Paths: []string{"/bin/true"}, Argv: []string{"x"}, Dir: "/nonexistent"}, StepChdir, unix.ENOENT},
		"cgroup":  {&Spec{Paths: []string{"/bin/true"}, Argv: []string{"x"}, Tasks: []int{999}}, StepCgroup, unix.EBADF},
		"fd":      {&Spec{Paths: []string{"/bin/true"}, Argv: []string{"x"}, Files: []File{{998, 0}}}, StepFiles, unix.EBADF},
		"argv":    {&Spec{Paths: []string{"/bin/true"}, Argv: []string{strings.Repeat("x", 200<<10)}}, StepExec, unix.E2BIG},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.spec.Pid = new(atomic.Int32)
			_, err := Start(tt.spec)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Step != tt.step || e.Errno != tt.want {
				t.Errorf("got %v", err)
			}
			if pid := int(tt.spec.Pid.Load()); pid != 0 {
				if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change ids and capabilities")
	}
	for _, noNew := range []bool{true, false} {
		for _, uid := range []uint32{0, 1000} {
			s := sh(`grep -E '^(Uid|Gid|Groups|CapEff|CapPrm|CapBnd|CapInh|NoNewPrivs|Seccomp):' /proc/self/status | tr -s ' \t' ' '; ulimit -n; cat /proc/self/oom_score_adj; mkdir /tmp/dsec-spawn-x 2>&1`)
			s.Cred = &Cred{UID: uid, GID: uid, Groups: []uint32{5, uid}}
			s.Bounding, s.NoNew = someCaps, noNew
			s.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 77}}
			s.Seccomp = denyMkdir()
			s.ResetOOMScore = true
			out, _ := run(t, s)
			var want []string
			if uid == 0 {
				want = []string{"Uid: 0 0 0 0", "Groups: 0 5", "CapPrm: 00000000000000a1", "CapEff: 00000000000000a1"}
			} else {
				want = []string{"Uid: 1000 1000 1000 1000", "Gid: 1000 1000 1000 1000", "Groups: 5 1000", "CapPrm: 0000000000000000", "CapEff: 0000000000000000"}
			}
			want = append(want, "CapBnd: 00000000000000a1", "CapInh: 0000000000000000", "Seccomp: 2", "\n77\n0\n", "Operation not permitted")
			if noNew {
				want = append(want, "NoNewPrivs: 1")
			} else {
				want = append(want, "NoNewPrivs: 0")
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("uid %d, no_new_privs %v: %q is missing in\n%s", uid, noNew, w, out)
				}
			}
		}
	}
}

// denyMkdir is a filter that refuses mkdir and allows the rest.
func denyMkdir() []byte {
	ins := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: unix.SYS_MKDIR},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	var b bytes.Buffer
	for _, i := range ins {
		b.Write([]byte{byte(i.Code), byte(i.Code >> 8), i.Jt, i.Jf, byte(i.K), byte(i.K >> 8), byte(i.K >> 16), byte(i.K >> 24)})
	}
	return b.Bytes()
}

func TestCgroupLeaf(t *testing.T) {
	const root = "/sys/fs/cgroup/unified"
	base := root
	if _, err := os.Stat(root); err != nil {
		base = "/sys/fs/cgroup"
	}
	dir := base + "/dsec-spawntest"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("needs a cgroup2 hierarchy to write to: %v", err)
	}
	defer os.Remove(dir)
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s := sh(`grep ^0:: /proc/self/cgroup`)
	s.Cgroup = fd
	out, _ := run(t, s)
	if !strings.HasSuffix(out, "/dsec-spawntest\n") {
		t.Error(out)
	}
}

// someCaps is a bounding set: 0xa1.
const someCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_KILL | 1<<unix.CAP_SETUID

func TestLauncher(t *testing.T) {
	const dir = "/sys/fs/cgroup/pids/dsec-launchertest"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("needs a cgroup v1 pids hierarchy to write to: %v", err)
	}
	fd, err := unix.Open(dir+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	l, err := NewLauncher([]int{fd}, someCaps)
	if err != nil {
		t.Fatal(err)
	}
	if l.thread.wait() != launcherDone {
		t.Fatal("it could not join the group, or not drop capabilities")
	}
	t.Cleanup(func() { // the thread lives as long as this process: move it out
		tids, err := os.ReadFile(dir + "/tasks")
		for tid := range bytes.Lines(tids) { // others may have joined by themselves
			err = errors.Join(err, os.WriteFile("/sys/fs/cgroup/pids/tasks", bytes.TrimSpace(tid), 0))
		}
		if err == nil {
			err = os.Remove(dir)
		}
		if err != nil {
			t.Error(err)
		}
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				spec := sh("grep ^CapBnd: /proc/self/status; grep ^[0-9]*:pids: /proc/self/cgroup; exit 5")
				spec.Tasks, spec.Bounding = []int{fd}, someCaps // on a busy machine the thread may seem to be held up
				if out, ws := runBy(t, spec, l.Start); !strings.HasPrefix(out, "CapBnd:\t00000000000000a1\n") || !strings.HasSuffix(out, "/dsec-launchertest\n") || ws.ExitStatus() != 5 {
					t.Errorf("got %q, %v", out, ws)
				}
			}
		})
	}
	wg.Wait()
	_, err = l.Start(&Spec{Paths: []string{"/nonexistent"}, Argv: []string{"x"}, Bounding: someCaps, Pid: new(atomic.Int32)})
	if e, ok := errors.AsType[*Error](err); !ok || e.Step != StepExec {
		t.Errorf("got %v", err)
	}
	_, _ = syscall.Wait4(-1, nil, 0, nil)
	// One that cannot join leaves the joining to each start, which fails in turn.
	lame, err := NewLauncher([]int{9999}, 0)
	if err != nil {
		t.Fatal(err)
	}
	spec := sh("true")
	spec.Tasks = []int{9999}
	if _, err = lame.Start(spec); err == nil {
		t.Error("a process was started outside of its groups")
	}
	_, _ = syscall.Wait4(-1, nil, 0, nil)
}

// noClone3 answers clone3 with ENOSYS, and uname with EPERM.
func noClone3() []byte {
	var b []byte
	for _, i := range []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ, Jf: 1, K: unix.SYS_CLONE3},
		{Code: unix.BPF_RET, K: 0x50000 | uint32(unix.ENOSYS)},
		{Code: unix.BPF_JMP | unix.BPF_JEQ, Jf: 1, K: unix.SYS_UNAME},
		{Code: unix.BPF_RET, K: 0x50000 | uint32(unix.EPERM)},
		{Code: unix.BPF_RET, K: retAllow},
	} {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&i)), insnSize)...)
	}
	return b
}

// triesEnv makes the test's program try clone3 as an agent would that has heard of the launcher.
const triesEnv = "DSEC_TEST_CLONE3"

func TestMain(m *testing.M) {
	if os.Getenv(triesEnv) == "" {
		os.Exit(m.Run())
	}
	args := &cloneArgs{exitSignal: uint64(unix.SIGCHLD)}
	for _, k := range []key{{}, {1, 2, 3, 4}} {
		_, _, e := unix.RawSyscall6(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), uintptr(k[0]), uintptr(k[1]), uintptr(k[2]), uintptr(k[3]))
		fmt.Println(e == unix.ENOSYS)
	}
	var name unix.Utsname
	fmt.Println(unix.Uname(&name) == unix.EPERM)
}

// A launcher's children are born with the filter; it takes one, and what wants another is started without it.
func TestLauncherConfines(t *testing.T) {
	l, err := NewLauncher(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tries := func() *Spec {
		return &Spec{Paths: []string{self}, Argv: []string{"tries"}, Env: []string{triesEnv + "=1"}, NoNew: true, Seccomp: noClone3()}
	}
	confined := func() *Spec {
		s := sh("grep -E '^(NoNewPrivs|Seccomp)' /proc/self/status; echo $(uname 2>&1)")
		s.NoNew, s.Seccomp = true, noClone3()
		return s
	}
	for range 3 {
		if out, _ := runBy(t, confined(), l.Start); !strings.HasPrefix(out, "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n") || !strings.Contains(out, "not permitted") {
			t.Error(out)
		}
		if out, _ := runBy(t, tries(), l.Start); out != "true\ntrue\ntrue\n" {
			t.Error(out)
		}
	}
	if l.filter == nil {
		t.Error("the thread was not used")
	}
	free := confined()
	free.NoNew = false
	if out, _ := runBy(t, free, l.Start); !strings.HasPrefix(out, "NoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n") || !l.confine(free) {
		t.Error(out)
	}
	other := confined()
	other.Seccomp = other.Seccomp[3*insnSize:] // of uname alone: jumps go on from where they are
	other.Seccomp = append(noClone3()[:insnSize:insnSize], other.Seccomp...)
	if out, _ := runBy(t, other, l.Start); !strings.Contains(out, "Seccomp_filters:\t1\n") || !strings.Contains(out, "not permitted") {
		t.Error(out)
	}
	if out, _ := runBy(t, sh("grep ^Seccomp: /proc/self/status"), l.Start); out != "Seccomp:\t0\n" {
		t.Error(out)
	}
}

// Whatever a child of the launcher does before its program, the agent's filter is on it already: each profile has to allow all of it.
func TestLauncherChildPassesEveryProfile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change ids and capabilities")
	}
	for _, profile := range seccomp.Profiles() {
		filter, err := seccomp.Compile(profile, nil, seccomp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLauncher(nil, someCaps)
		if err != nil {
			t.Fatal(err)
		}
		for _, noNew := range []bool{true, false} {
			for _, uid := range []uint32{0, 1000} {
				master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
					t.Fatal(err)
				}
				slave, _, e := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
				if e != 0 {
					t.Fatal(e)
				}
				s := sh(`grep -cE '^(Seccomp:.2|Uid:.'$(id -u)')' /proc/self/status; cat /proc/self/oom_score_adj; pwd; echo x >&9; [ $(cut -d' ' -f 7 /proc/$$/stat) != 0 ] && echo terminal`)
				s.TTY, s.ResetOOMScore, s.Dir, s.SoftDir = true, true, "/nonexistent", true
				s.Cred = &Cred{UID: uid, GID: uid, Groups: []uint32{5, uid}}
				s.Bounding, s.NoNew, s.Seccomp = someCaps, noNew, filter
				s.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 777}, {unix.RLIMIT_CORE, 1}, {unix.RLIMIT_FSIZE, 1 << 30}, {unix.RLIMIT_STACK, 8 << 20}}
				s.Files = []File{{int(slave), 9}, {int(slave), 98}} // above it: each has to be moved out of the way first
				s.Pid = new(atomic.Int32)
				for to := range 3 {
					s.Files = append(s.Files, File{int(slave), to})
				}
				fd, err := l.Start(s)
				_ = unix.Close(int(slave))
				if err != nil {
					t.Fatalf("%s, uid %d, no_new_privs %v: %v", profile, uid, noNew, err)
				}
				out, _ := io.ReadAll(master) // a terminal ends with EIO
				_ = master.Close()
				_ = unix.Close(fd)
				var ws syscall.WaitStatus
				if _, err := syscall.Wait4(int(s.Pid.Load()), &ws, 0, nil); err != nil {
					t.Fatal(err)
				}
				if got := strings.ReplaceAll(string(out), "\r", ""); got != "2\n0\n/\nx\nterminal\n" || ws.ExitStatus() != 0 {
					t.Errorf("%s, uid %d, no_new_privs %v: status %d, %q", profile, uid, noNew, ws.ExitStatus(), got)
				}
			}
		}
		if l.filter == nil {
			t.Errorf("%s: the launcher was not used", profile)
		}
	}
}

func TestAdmitRefusesWhatIsTooLong(t *testing.T) {
	if admit(make([]byte, maxInsns*insnSize), key{}) != nil {
		t.Error("the kernel would refuse it")
	}
	if f := admit(noClone3(), key{}); len(f) != len(noClone3())+keyInsns*insnSize {
		t.Error(len(f))
	}
}

func TestConcurrent(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				out, ws := run(t, sh("echo $((6*7))"))
				if out != "42\n" || ws.ExitStatus() != 0 {
					t.Errorf("got %q, %v", out, ws)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkTrue(b *testing.B) {
	for b.Loop() {
		s := &Spec{Paths: []string{"/bin/true"}, Argv: []string{"true"}, Pid: new(atomic.Int32)}
		fd, err := Start(s)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = syscall.Wait4(int(s.Pid.Load()), nil, 0, nil)
		unix.Close(fd)
	}
}

// A long line waits for the thread; only a start that is held up is gone around.
func TestLauncherIsPassedOnlyWhenHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Launcher{turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		busy := make(chan bool)
		go func() { // starts follow each other
			for range 25 {
				l.since.Store(time.Now().UnixNano())
				time.Sleep(patience / 10)
			}
			l.since.Store(0)
			<-l.turn
		}()
		go func() { busy <- l.take() }()
		if !<-busy {
			t.Error("a line was taken for a start that is held up")
		}
		l.since.Store(time.Now().UnixNano())
		if l.take() {
			t.Error("the thread was taken twice")
		}
	})
}
