package spawner

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Request{
			Kind: Kind(rapid.IntRange(1, 2).Draw(t, "kind")), Base: rapid.Uint32().Draw(t, "base"), Count: rapid.Uint32().Draw(t, "count"),
			Listen: 10, Exe: 11, Cgroup: 12, Join: rapid.SliceOfN(rapid.IntRange(20, 30), 0, maxJoins).Draw(t, "join"),
		}
		var out Request
		if err := guestproto.Unmarshal(guestproto.Marshal(nil, &in), &out); err != nil {
			t.Fatal(err)
		}
		if err := out.SetFDs(in.FDs()); err != nil {
			t.Fatal(err)
		}
		if out.Kind != in.Kind || out.Base != in.Base || out.Count != in.Count || out.Listen != 10 || out.Exe != 11 || out.Cgroup != 12 || len(out.Join) != len(in.Join) {
			t.Fatalf("got %+v, want %+v", out, in)
		}
		if err := out.SetFDs(append(in.FDs(), 1)); err == nil {
			t.Fatal("took one descriptor too many")
		}
	})
}

func TestReplyIsNeverAnEmptyPacket(t *testing.T) {
	if len(guestproto.Marshal(nil, &Reply{})) == 0 {
		t.Error("it would look like the end of the connection")
	}
}

// TestMain makes this test binary the spawner when it is started as one.
func TestMain(m *testing.M) {
	if os.Args[0] == "dsec-spawner" {
		if err := Serve(ListenFD); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start runs a spawner and gives a connection to it.
func start(t *testing.T) (*exec.Cmd, func() int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("forking boxes needs root")
	}
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	addr := &unix.SockaddrUnix{Name: path}
	if err := errors.Join(unix.Bind(fd, addr), unix.Listen(fd, 8)); err != nil {
		t.Fatal(err)
	}
	listen := os.NewFile(uintptr(fd), "listen")
	defer listen.Close()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"dsec-spawner"}, ExtraFiles: []*os.File{listen}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, func() int {
		conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(conn, addr)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(conn) })
		return conn
	}
}

// request asks for a box whose program is exe, in a fresh cgroup.
func request(t *testing.T, conn int, exe string) Reply {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/unified", "dsec-sptest-"+strconv.Itoa(os.Getpid()))
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err != nil {
		dir = filepath.Join("/sys/fs/cgroup", filepath.Base(dir))
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		t.Skipf("no cgroup2: %v", err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0)
		for range 200 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	var fds [3]*os.File
	for i, path := range []string{"/dev/null", exe, dir} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fds[i] = f
	}
	r := Request{Kind: KindSpawn, Base: 3000000, Count: 65536, Listen: int(fds[0].Fd()), Exe: int(fds[1].Fd()), Cgroup: int(fds[2].Fd())}
	if err := unix.Sendmsg(conn, guestproto.Marshal(nil, &r), unix.UnixRights(r.FDs()...), nil, 0); err != nil {
		t.Fatal(err)
	}
	buf, oob := make([]byte, 512), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(conn, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	reply := Reply{PidFD: -1}
	if err := guestproto.Unmarshal(buf[:n], &reply); err != nil {
		t.Fatal(err)
	}
	if got, err := ParseRights(oob[:oobn]); err == nil && len(got) == 1 {
		reply.PidFD = got[0]
		t.Cleanup(func() { unix.Close(got[0]) })
	}
	return reply
}

func ends(t *testing.T, pidfd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 5000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n == 0 || err != nil {
			t.Fatalf("the child lives on: %v", err)
		}
		return
	}
}

func TestSpawnGivesNamespacesAndIds(t *testing.T) {
	_, dial := start(t)
	const busybox = "/bin/busybox"
	if _, err := os.Stat(busybox); err != nil {
		t.Skip("needs busybox-static as a program that stays")
	}
	// Called dsec-guest, busybox ends at once ("applet not found"): what matters is that it was executed and reaped.
	reply := request(t, dial(), busybox)
	if reply.Errno != 0 || reply.Pid <= 0 || reply.PidFD < 0 {
		t.Fatalf("%+v", reply)
	}
	ends(t, reply.PidFD)
	for range 400 { // reaped: the pid is gone
		if _, err := os.Stat("/proc/" + strconv.Itoa(reply.Pid)); os.IsNotExist(err) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("a zombie is left")
}

func TestWhatCannotBeExecutedEnds(t *testing.T) {
	_, dial := start(t)
	reply := request(t, dial(), "/etc/hostname")
	if reply.Errno != 0 {
		t.Fatalf("%+v", reply)
	}
	ends(t, reply.PidFD)
}

func TestMalformedRequestsEndTheConnectionOnly(t *testing.T) {
	cmd, dial := start(t)
	for _, raw := range [][]byte{{0xff}, guestproto.Marshal(nil, &Request{Kind: KindSpawn}), guestproto.Marshal(nil, &Request{Kind: 9})} {
		conn := dial()
		if err := unix.Send(conn, raw, 0); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Read(conn, make([]byte, 16)); n != 0 || err != nil {
			t.Errorf("%x: got %d bytes, %v", raw, n, err)
		}
	}
	// It serves on, and quits when it is asked to.
	conn := dial()
	if err := unix.Send(conn, guestproto.Marshal(nil, &Request{Kind: KindQuit}), 0); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.ExitStatus() != 0 {
		t.Errorf("exit %d", s.ExitStatus())
	}
}
