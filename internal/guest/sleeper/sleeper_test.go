package sleeper

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// In a test's child the binary goes to rest, and says what it finds when it is awake again.
const env = "DSEC_TEST_SLEEPER"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(env) == "":
		os.Exit(m.Run())
	case len(os.Args) == 3:
		_, err := unix.FcntlInt(7, unix.F_GETFD, 0)
		print("awake ", os.Args[0], " ", os.Args[2], " ", err == nil, "\n")
		return
	}
	err := Exec([]string{"sleepy", "", "seven"})
	print("not at rest: ", err.Error(), "\n")
}

func TestSleepsUntilSomebodyConnects(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listen, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer listen.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.ExtraFiles = []*os.File{listen, nil, nil, nil, listen} // 3 and 7
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	status := func() string {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	end := time.Now().Add(30 * time.Second)
	for !strings.Contains(status(), "Threads:\t1\n") || !strings.Contains(status(), "State:\tS") {
		if time.Now().After(end) {
			t.Fatal(status())
		}
		time.Sleep(time.Millisecond)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Program(cmd.Process.Pid); err != nil || got != self {
		t.Errorf("its program is %s (%v), want %s", got, err, self)
	}
	// A stop and a continuation interrupt its wait, and are no connection.
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
		if err := unix.Kill(cmd.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if s := status(); !strings.Contains(s, "Threads:\t1\n") {
		t.Errorf("it is awake:\n%s", s)
	}
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "awake sleepy seven true\n" {
		t.Errorf("%q %v", line, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
