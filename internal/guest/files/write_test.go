package files

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

func TestWriteThenRead(t *testing.T) {
	c, dir := start(t), t.TempDir()
	big := bytes.Repeat([]byte("0123456789abcdef"), 3<<16)
	for _, tc := range []struct {
		name string
		data []byte
	}{
		{"empty", nil}, {"small", []byte("x")}, {"big", big}, {"with space\nand newline", []byte("y")},
		{"bytes\xff\xfe", []byte("z")}, {strings.Repeat("n", 255), []byte("255")},
	} {
		path := filepath.Join(dir, tc.name)
		info, err := c.write(guestproto.FileRequest{Path: path, User: self(), Size: -1}, tc.data)
		if err != nil {
			t.Fatalf("%q: %v", tc.name, err)
		}
		if info.Size != int64(len(tc.data)) || info.Mode != 0o644 || info.Type != guestproto.TypeFile || info.Name != tc.name {
			t.Errorf("%q: %+v", tc.name, info)
		}
		info, got, err := c.read(guestproto.FileRequest{Path: path, User: self(), Length: -1})
		if err != nil || !bytes.Equal(got, tc.data) || info.Size != int64(len(tc.data)) {
			t.Errorf("%q: read %d bytes, %v", tc.name, len(got), err)
		}
	}
	leftovers(t, dir, 6)
	_, got, err := c.read(guestproto.FileRequest{Path: filepath.Join(dir, "big"), User: self(), Offset: 5, Length: 7})
	if err != nil || string(got) != "56789ab" {
		t.Errorf("range: %q %v", got, err)
	}
}

// What was written can be executed once the write is answered: nobody has it open any more.
func TestWriteThenExecute(t *testing.T) {
	c, path := start(t), filepath.Join(t.TempDir(), "script")
	for i := range 200 {
		if _, err := c.write(guestproto.FileRequest{Path: path, User: self(), Size: -1, Mode: 0o755}, []byte("#!/bin/true\n")); err != nil {
			t.Fatal(err)
		}
		if err := exec.Command(path).Run(); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

func TestWriteReplacesAtomically(t *testing.T) {
	c, dir := start(t), t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, []byte("old"), 0o750))
	var before unix.Stat_t
	must(t, unix.Stat(path, &before))

	s := c.open(guestproto.KindFileWrite, guestproto.FileRequest{Path: path, User: self(), Size: -1}, false)
	if _, err := s.Write([]byte("half of the new")); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("seen before the end: %q", got)
	}
	s.Close() // a lost client
	// The next request's answer does not say that the lost one is cleaned up: wait for it.
	for range 100 {
		if list, _ := os.ReadDir(dir); len(list) == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	leftovers(t, dir, 1)
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("after a lost client: %q", got)
	}

	info, err := c.write(guestproto.FileRequest{Path: path, User: self(), Size: 3}, []byte("new"))
	must(t, err)
	var after unix.Stat_t
	must(t, unix.Stat(path, &after))
	if info.Mode != 0o750 || after.Ino == before.Ino {
		t.Errorf("mode %o, replaced %v", info.Mode, after.Ino != before.Ino)
	}
	leftovers(t, dir, 1)
}

func TestWriteThroughLinkAndParents(t *testing.T) {
	c, dir := start(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "real"), []byte("old"), 0o644))
	must(t, os.Symlink("real", filepath.Join(dir, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	_, err := c.write(guestproto.FileRequest{Path: filepath.Join(dir, "link"), User: self(), Size: -1}, []byte("new"))
	must(t, err)
	if got, _ := os.ReadFile(filepath.Join(dir, "real")); string(got) != "new" {
		t.Errorf("the link's target has %q", got)
	}
	if target, _ := os.Readlink(filepath.Join(dir, "link")); target != "real" {
		t.Error("the link was replaced")
	}
	_, err = c.write(guestproto.FileRequest{Path: filepath.Join(dir, "dangling"), User: self(), Size: -1}, nil)
	wantError(t, err, "user", "not_found")
	_, err = c.write(guestproto.FileRequest{Path: filepath.Join(dir, "a/b/c"), User: self(), Size: -1}, nil)
	wantError(t, err, "user", "not_found")
	_, err = c.write(guestproto.FileRequest{Path: filepath.Join(dir, "a/b/c"), User: self(), Parents: true, Mode: 0o600, Size: -1}, []byte("deep"))
	must(t, err)
	_, err = c.write(guestproto.FileRequest{Path: filepath.Join(dir, "new"), User: self(), NoCreate: true, Size: -1}, nil)
	wantError(t, err, "user", "not_found")
}

func TestAppend(t *testing.T) {
	c, dir := start(t), t.TempDir()
	path := filepath.Join(dir, "f")
	for _, part := range []string{"one", "two"} {
		_, err := c.write(guestproto.FileRequest{Path: path, User: self(), Append: true, Size: -1}, []byte(part))
		must(t, err)
	}
	_, err := c.write(guestproto.FileRequest{Path: path, User: self(), Append: true, Offset: 6, Size: -1}, []byte("three"))
	must(t, err)
	_, err = c.write(guestproto.FileRequest{Path: path, User: self(), Append: true, Offset: 6, Size: -1}, []byte("three"))
	wantError(t, err, "user", "conflict")
	_, err = c.write(guestproto.FileRequest{Path: path, User: self(), Append: true, Size: 99}, []byte("short"))
	wantError(t, err, "user", "invalid_argument")
	if got, _ := os.ReadFile(path); string(got) != "onetwothree" {
		t.Errorf("%q", got)
	}
}

func TestSpecialFilesDoNotHang(t *testing.T) {
	c, dir := start(t), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o666))
	for _, path := range []string{fifo, "/dev/null", "/dev/zero"} {
		_, _, err := c.read(guestproto.FileRequest{Path: path, User: self(), Length: -1})
		wantError(t, err, "user", "invalid_argument")
		for _, app := range []bool{false, true} {
			_, err = c.write(guestproto.FileRequest{Path: path, User: self(), Append: app, Size: -1}, []byte("x"))
			wantError(t, err, "user", "invalid_argument")
		}
	}
	_, _, err := c.read(guestproto.FileRequest{Path: dir, User: self(), Length: -1})
	wantError(t, err, "user", "invalid_argument")
	_, err = c.write(guestproto.FileRequest{Path: dir, User: self(), Size: -1}, nil)
	wantError(t, err, "user", "invalid_argument")
	if _, got, err := c.read(guestproto.FileRequest{Path: "/proc/self/status", User: self(), Length: -1}); err != nil || !bytes.Contains(got, []byte("Name:")) {
		t.Errorf("/proc: %q %v", got, err)
	}
}

func TestSparseFileIsRead(t *testing.T) {
	c, dir := start(t), t.TempDir()
	path := filepath.Join(dir, "holes")
	f, err := os.Create(path)
	must(t, err)
	must(t, f.Truncate(64<<20))
	must(t, f.Close())
	info, got, err := c.read(guestproto.FileRequest{Path: path, User: self(), Offset: 63 << 20, Length: -1})
	if err != nil || len(got) != 1<<20 || info.Blocks512 != 0 {
		t.Errorf("%d bytes, %+v, %v", len(got), info, err)
	}
}

func TestBadPathsAndUsers(t *testing.T) {
	c, dir := start(t), t.TempDir()
	for _, tc := range []struct {
		path, user, reason string
	}{
		{"", self(), "invalid_argument"}, {"/a\x00b", self(), "invalid_argument"}, {filepath.Join(dir, "none"), self(), "not_found"},
		{filepath.Join(dir, strings.Repeat("n", 256)), self(), "invalid_argument"}, {dir, "no-such-user", "not_found"},
	} {
		_, _, err := c.read(guestproto.FileRequest{Path: tc.path, User: tc.user, Length: -1})
		wantError(t, err, "user", tc.reason)
	}
	s, err := c.conn.Open(guestproto.KindFileStat, []byte("\xff\xff"), true)
	must(t, err)
	wantError(t, s.RecvMessage(&guestproto.Reply{}), "user", "invalid_argument")
	s, err = c.conn.Open(guestproto.KindExec, nil, true)
	must(t, err)
	if err := s.RecvMessage(&guestproto.Reply{}); err == nil {
		t.Error("an exec was served")
	}
}

// TestDiskFull runs on a small tmpfs.
func TestDiskFull(t *testing.T) {
	needRoot(t)
	c, dir := start(t), t.TempDir()
	if err := unix.Mount("dsec-test", dir, "tmpfs", 0, "size=1m,nr_inodes=20"); err != nil {
		t.Skipf("no tmpfs can be mounted: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	path := filepath.Join(dir, "f")
	_, err := c.write(guestproto.FileRequest{Path: path, Size: 2 << 20}, nil)
	wantError(t, err, "limit", "disk_full")
	s := c.open(guestproto.KindFileWrite, guestproto.FileRequest{Path: path, Size: -1}, false)
	var werr error
	for range 200 {
		if _, werr = s.Write(make([]byte, 32<<10)); werr != nil {
			break
		}
	}
	wantError(t, werr, "limit", "disk_full")
	for range 100 {
		if list, _ := os.ReadDir(dir); len(list) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	leftovers(t, dir, 0)
	var fs unix.Statfs_t
	must(t, unix.Statfs(dir, &fs))
	if fs.Bfree < fs.Blocks {
		t.Errorf("%d of %d blocks are free after the failure", fs.Bfree, fs.Blocks)
	}
}

// FuzzRequest decodes anything and resolves its path; it runs no operation.
func FuzzRequest(f *testing.F) {
	f.Add(guestproto.Marshal(nil, &guestproto.FileRequest{Path: "~/x", To: "/y", User: "root", Owner: "a:b", Length: -1}))
	f.Fuzz(func(t *testing.T, body []byte) {
		o := &op{home: "/home/user"}
		if guestproto.Unmarshal(body, &o.req) != nil {
			return
		}
		for _, p := range []string{o.req.Path, o.req.To} {
			path, err := o.resolve(p)
			if err == nil && (path[0] != '/' || strings.IndexByte(path, 0) >= 0) {
				t.Fatalf("%q resolves to %q", p, path)
			}
			if err == nil {
				if _, name, err := split(path); err == nil && (name == "" || name == "." || name == ".." || strings.Contains(name, "/")) {
					t.Fatalf("%q has the name %q", path, name)
				}
			}
		}
	})
}
