package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

func node(t *testing.T) *Node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	n, err := Open(Options{Name: "dsec-cgtest-" + strconv.Itoa(os.Getpid())})
	if err != nil {
		t.Skipf("no usable cgroups: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.RemoveRoot(ctx); err != nil {
			t.Error(err)
		}
		n.Close()
	})
	return n
}

var limits = runtime.Limits{Memory: 32 << 20, Pids: 16, CPU: 0.5}

// inAgent starts a command as an agent process, as the guest does.
func inAgent(t *testing.T, b *Birth, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: b.AgentDir}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, fd := range b.AgentTasks {
		if _, err := unix.Write(fd, []byte(strconv.Itoa(cmd.Process.Pid))); err != nil {
			t.Fatal(err)
		}
	}
	return cmd
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func create(t *testing.T, n *Node, id string, l runtime.Limits) *Birth {
	t.Helper()
	b, err := n.Create(id, 400000, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := errors.Join(n.Kill(id), n.AwaitEmpty(ctx, id), n.Remove(id)); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestLimitsAreReadBack(t *testing.T) {
	n := node(t)
	create(t, n, "a", limits)
	var u runtime.Usage
	if err := n.Usage("a", &u); err != nil || u.MemoryLimit != limits.Memory || u.Pids != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	for _, l := range []runtime.Limits{{Memory: 64 << 20, Pids: 8}, {Memory: 16 << 20, Pids: 8, CPU: 2}, {}} {
		if err := n.SetLimits("a", l); err != nil {
			t.Fatalf("%+v: %v", l, err)
		}
		if err := n.Usage("a", &u); err != nil || u.MemoryLimit != l.Memory {
			t.Errorf("%+v: %+v, %v", l, u, err)
		}
	}
	n.Unthrottle("a")
	n.Unthrottle("absent")
	if owner, err := n.Owner("a"); err != nil || owner != 400000 {
		t.Errorf("owner %d, %v", owner, err)
	}
}

func TestFreezeThawKill(t *testing.T) {
	n := node(t)
	b := create(t, n, "a", limits)
	cmd := inAgent(t, b, "/bin/sh", "-c", "while :; do :; done")
	for range 2 {
		if err := n.Freeze(deadline(t), "a"); err != nil {
			t.Fatal(err)
		}
	}
	used := func() time.Duration {
		var u runtime.Usage
		if err := n.Usage("a", &u); err != nil {
			t.Fatal(err)
		}
		return u.CPU
	}
	before := used()
	time.Sleep(200 * time.Millisecond)
	if after := used(); after > before+50*time.Millisecond {
		t.Errorf("a frozen process used %v", after-before)
	}
	if err := n.KillAgent(deadline(t), "a"); err != nil { // frozen as it is
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("ended with %v", err)
	}
	if err := n.Thaw(deadline(t), "a"); err != nil {
		t.Fatal(err)
	}
	// The group is of use afterwards: what is cloned into it lives.
	if err := inAgent(t, b, "/bin/true").Wait(); err != nil {
		t.Errorf("a process after the kill: %v", err)
	}
}

func TestRemoveSaysWhatLives(t *testing.T) {
	n := node(t)
	b := create(t, n, "a", limits)
	inAgent(t, b, "/bin/sleep", "100")
	if err := unix.Mkdirat(b.AgentDir, "op-1", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove("a"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed with a process in it: %v", err)
	}
	if ids, err := n.List(); err != nil || len(ids) != 1 || ids[0] != "a" || !n.Exists("a") {
		t.Errorf("listed %v, %v", ids, err)
	}
	if err := n.RemoveRoot(deadline(t)); !errors.Is(err, unix.EBUSY) {
		t.Errorf("the root: %v", err)
	}
	if err := errors.Join(n.Kill("a"), n.AwaitEmpty(deadline(t), "a"), n.Remove("a"), n.Remove("a")); err != nil {
		t.Error(err)
	}
	if n.Exists("a") {
		t.Error("it is there still")
	}
}

func TestOOMIsCounted(t *testing.T) {
	n := node(t)
	b := create(t, n, "a", limits)
	cmd := inAgent(t, b, "/bin/sh", "-c", "sleep 0.1; exec tail /dev/zero")
	_ = cmd.Wait()
	if kills, err := n.OOMKills("a"); err != nil || kills < 1 {
		t.Errorf("%d kills, %v", kills, err)
	}
	if peak, err := n.Peak("a"); err != nil || peak < limits.Memory*9/10 {
		t.Errorf("peak %d, %v", peak, err)
	}
}

func TestCreateLeavesNothingWhenItFails(t *testing.T) {
	n := node(t)
	if _, err := n.Create("a", 400000, runtime.Limits{Memory: 1, Pids: 1, ReadBPS: 1}); err == nil {
		t.Skip("io limits work without a device")
	}
	if n.Exists("a") {
		t.Error("half of it is left")
	}
	create(t, n, "b", limits)
	if _, err := n.Create("b", 400000, limits); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same id again: %v", err)
	}
	if err := n.SetLimits("b", limits); err != nil {
		t.Errorf("the first one was harmed: %v", err)
	}
}

func TestKillThatIsCutShortLeavesNothingFrozen(t *testing.T) {
	n := node(t)
	b := create(t, n, "a", limits)
	inAgent(t, b, "sleep", "100")
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for range 2 { // and the next one does not take the freeze for the owner's
		_ = n.KillAgent(done, "a")
		if got, err := readAt(n.unified, "a/agent/cgroup.freeze"); err != nil || string(got) != "0\n" {
			t.Errorf("cgroup.freeze: %q, %v", got, err)
		}
	}
}

func TestRootGoesWhenTheLastThreadHas(t *testing.T) {
	if isCgroup2("/sys/fs/cgroup") {
		t.Skip("v1 groups only")
	}
	n, err := Open(Options{Name: "dsec-cgroot-" + strconv.Itoa(os.Getpid())})
	if err != nil {
		t.Skipf("no usable cgroups: %v", err)
	}
	defer n.Close()
	dir, join, err := n.Parking()
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(dir)
	cmd := exec.Command("sleep", "0.2")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, fd := range join {
		if _, err := unix.Write(fd, []byte(strconv.Itoa(cmd.Process.Pid))); err != nil {
			t.Error(err)
		}
		unix.Close(fd)
	}
	go func() { _ = cmd.Wait() }()
	if err := n.RemoveRoot(deadline(t)); err != nil {
		t.Error(err)
	}
}

func TestSocketBuffersAreLimited(t *testing.T) {
	n := node(t)
	h, ok := n.layout.(*hybrid)
	if !ok || !h.tcp {
		t.Skip("cgroup v2 counts them as memory, or there is no such limit")
	}
	create(t, n, "a", limits)
	for _, l := range []struct{ memory, want int64 }{{0, 1<<63 - 4096}, {64 << 20, 8 << 20}, {16 << 20, minTCP}} {
		if err := n.SetLimits("a", runtime.Limits{Memory: l.memory}); err != nil {
			t.Fatal(err)
		}
		if got, err := readInt(h.dirs["memory"], "a.a/"+tcpLimit); err != nil || got/4096 != l.want/4096 {
			t.Errorf("with %d bytes of memory %d of buffers, %v", l.memory, got, err)
		}
	}
}

func TestFreezeThatIsCutShortDoesNotFreeze(t *testing.T) {
	n := node(t)
	b := create(t, n, "a", limits)
	inAgent(t, b, "sleep", "100")
	done, cancel := context.WithCancel(context.Background())
	cancel()
	want := "0\n"
	if n.Freeze(done, "a") == nil {
		want = "1\n" // the kernel was faster
	}
	if got, err := readAt(n.unified, "a/agent/cgroup.freeze"); err != nil || string(got) != want {
		t.Errorf("cgroup.freeze: %q, %v", got, err)
	}
}

// What comes into the groups while they are being killed does not hold up the kill.
func TestKillReachesWhatIsStartedMeanwhile(t *testing.T) {
	n := node(t)
	create(t, n, "a", limits)
	procs := "/proc/self/fd/" + strconv.Itoa(n.unified) + "/a/agent/cgroup.procs"
	target, err := os.OpenFile(procs, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	// The starter is another process: a start that stands holds up the one that made it.
	starter := exec.Command("/bin/sh", "-c", `while :; do sh -c 'echo $$ >&3 && exec sleep 100' & sleep 0.002; done`)
	starter.ExtraFiles = []*os.File{target}
	starter.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	// What it has started and is on its way goes with it: it would join the group after the test's end.
	defer func() {
		_ = unix.Kill(-starter.Process.Pid, unix.SIGKILL)
		_ = starter.Wait()
	}()
	for ctx := deadline(t); len(n.Pids("a")) == 0 && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	for range 30 {
		if err := n.KillAgent(deadline(t), "a"); err != nil {
			t.Error(err)
			break
		}
	}
}
