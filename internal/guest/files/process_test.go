package files

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// TestWorkerProcess runs the worker as a guest does: a process that serves one
// connection, survives what happens to its files, and ends with the connection.
func TestWorkerProcess(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DSEC_FILES_WORKER=1")
	cmd.ExtraFiles = []*os.File{theirs}
	must(t, cmd.Start())
	theirs.Close()
	conn, err := mux.NewConn(ours, mux.Config{})
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- conn.Serve() }()
	c, dir := &client{t, conn}, t.TempDir()
	path := filepath.Join(dir, "f")

	s := c.open(guestproto.KindFileWrite, guestproto.FileRequest{Path: path, User: self(), Size: -1}, false)
	var werr error
	for range 1000 {
		if _, werr = s.Write(make([]byte, 32<<10)); werr != nil {
			break
		}
	}
	wantError(t, werr, "limit", "disk_full") // RLIMIT_FSIZE
	_, err = c.write(guestproto.FileRequest{Path: path, User: self(), Size: -1, Mode: 0o666}, []byte("small"))
	must(t, err)
	info, got, err := c.read(guestproto.FileRequest{Path: path, User: self(), Length: -1})
	if err != nil || string(got) != "small" || info.Mode != 0o666 {
		t.Errorf("%q %+v %v", got, info, err)
	}

	// An upload is under way when the connection goes: it leaves nothing, and the process ends.
	s = c.open(guestproto.KindFileWrite, guestproto.FileRequest{Path: filepath.Join(dir, "g"), User: self(), Size: -1}, false)
	_, err = io.WriteString(s, "half")
	must(t, err)
	conn.Close()
	<-served
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatalf("the worker outlives its connection: %v", <-ended)
	}
	leftovers(t, dir, 1)
}
