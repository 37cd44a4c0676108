package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime/native/thread"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
}

// fill writes until the store refuses, and gives how much it took.
func fill(t *testing.T, s *Store) int64 {
	t.Helper()
	fd, err := unix.Openat(s.FD(), "d0", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	f, err := unix.Openat(fd, "big", unix.O_CREAT|unix.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(f)
	var total int64
	done := make(chan error, 1)
	thread.Go(func() { // as a box, which is not above quotas
		err := thread.Drop(unix.CAP_SYS_RESOURCE)
		for chunk := make([]byte, 1<<16); err == nil && total < 1<<30; {
			var n int
			n, err = unix.Write(f, chunk)
			total += int64(max(n, 0))
		}
		done <- err
	})
	if err := <-done; !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		t.Fatalf("after %d bytes: %v", total, err)
	}
	return total
}

func TestLimitHolds(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	m, err := New(Options{Dir: filepath.Join(dir, "boxes"), Images: filepath.Join(dir, "images"), TmpfsIDs: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	disk, why := m.Disk()
	t.Logf("disk stores: %s (%s)", disk, why)
	const size = 16 << 20
	for _, wanted := range []string{"tmpfs", "disk"} {
		t.Run(wanted, func(t *testing.T) {
			s, err := m.Make("box-"+wanted, wanted, size, 165536)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Mkdir("d0"); err != nil {
				t.Fatal(err)
			}
			if got := fill(t, s); got > size || got < size/2 {
				t.Errorf("took %d bytes, limit %d", got, size)
			}
			if used, limit := s.Used(); limit != size || used < size/2 || used > size {
				t.Errorf("used %d of %d", used, limit)
			}
			if err := s.Destroy(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if left, err := m.List(); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestImagesAreMadeAheadAndGivenUp(t *testing.T) {
	needRoot(t)
	if err := probeLoop(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	im := newImages(dir, slog.New(slog.DiscardHandler))
	s, err := im.take(8<<20, filepath.Join(dir, "a.img"))
	if err != nil {
		t.Fatal(err)
	}
	im.wg.Wait()
	if n := len(im.sizes[8<<20].ready); n != spares {
		t.Errorf("%d ready, want %d", n, spares)
	}
	s.Close()
	im.close()
	if err := removeImage(filepath.Join(dir, "a.img"), s.device); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		raw, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		busy := false
		for _, f := range raw {
			b, _ := os.ReadFile(f)
			busy = busy || strings.HasPrefix(string(b), dir)
		}
		if !busy {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a loop device is left")
		}
	}
}

func TestTmpfsCanBeResized(t *testing.T) {
	needRoot(t)
	s, err := newTmpfs(1<<20, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Mkdir("d0"); err != nil {
		t.Fatal(err)
	}
	if err := s.Resize(4 << 20); err != nil {
		t.Fatal(err)
	}
	if got := fill(t, s); got < 3<<20 || got > 4<<20 {
		t.Errorf("took %d bytes", got)
	}
}

func TestRemoveTreeWithoutDepth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 { // longer than any path may be
		if err := errors.Join(unix.Mkdirat(at, "nested-directory", 0o700), unix.Symlinkat("/etc", at, "link")); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "nested-directory", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	for _, name := range []string{"_1", "_2", "x"} { // names that the removal itself uses
		if err := os.MkdirAll(filepath.Join(dir, name, "sub", "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatal("followed a symlink")
	}
}

// TestImagesOfAKilledDaemon: they are out of the way at once, and removed, those too of a daemon that
// ended before it had removed its predecessor's.
func TestImagesOfAKilledDaemon(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"golden-4096", "spare-1-1", "left-1/spare-1-1", "left-1/spare-1-2"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := newImages(dir, slog.New(slog.DiscardHandler))
	for _, name := range []string{"golden-4096", "spare-1-1"} {
		if exists(filepath.Join(dir, name)) {
			t.Errorf("%s is in the way of a new one", name)
		}
	}
	m.wg.Wait()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	m.close()
}
