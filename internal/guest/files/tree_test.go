package files

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

func (c *client) list(req guestproto.FileRequest, fn func(guestproto.FileInfo)) error {
	c.t.Helper()
	s := c.open(guestproto.KindFileList, req, true)
	for {
		var info guestproto.FileInfo
		err := s.RecvMessage(&info)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		fn(info)
	}
}

func TestListLargeDirectory(t *testing.T) {
	c, dir := start(t), quickDir(t)
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	for i := range n {
		fd, err := unix.Open(fmt.Sprintf("%s/%d", dir, i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		must(t, err)
		unix.Close(fd)
	}
	seen := make(map[string]bool, n)
	must(t, c.list(guestproto.FileRequest{Path: dir, User: self()}, func(i guestproto.FileInfo) { seen[i.Name] = true }))
	if len(seen) != n {
		t.Errorf("%d entries of %d", len(seen), n)
	}
	// A client that goes away in the middle leaves nothing running (goleak looks).
	s := c.open(guestproto.KindFileList, guestproto.FileRequest{Path: dir, User: self()}, true)
	must(t, s.RecvMessage(&guestproto.FileInfo{}))
	s.Close()
	must(t, c.do(guestproto.KindFileRemove, guestproto.FileRequest{Path: dir, User: self(), Recursive: true}))
}

func TestListDepth(t *testing.T) {
	c, dir := start(t), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755))
	must(t, os.Symlink("..", filepath.Join(dir, "a/up")))
	for depth, want := range map[uint32]string{0: "a", 1: "a", 2: "a a/b a/up", 9: "a a/b a/b/c a/up"} {
		var got []string
		must(t, c.list(guestproto.FileRequest{Path: dir, User: self(), Depth: depth}, func(i guestproto.FileInfo) {
			got = append(got, strings.TrimPrefix(i.Path, dir+"/"))
			if i.Name == "up" && (i.Type != guestproto.TypeSymlink || i.Target != "..") {
				t.Errorf("%+v", i)
			}
		}))
		if len(got) != len(strings.Fields(want)) {
			t.Errorf("depth %d: %v, want %s", depth, got, want)
		}
	}
	wantError(t, c.list(guestproto.FileRequest{Path: "/etc/passwd", User: self()}, nil), "user", "invalid_argument")
}

func TestStat(t *testing.T) {
	c, dir := start(t), t.TempDir()
	link := filepath.Join(dir, "l")
	must(t, os.Symlink("/etc/passwd", link))
	var info guestproto.FileInfo
	must(t, c.call(guestproto.KindFileStat, guestproto.FileRequest{Path: link, User: self()}, &info))
	if info.Type != guestproto.TypeSymlink || info.Target != "/etc/passwd" || info.Path != link || info.Name != "l" {
		t.Errorf("%+v", info)
	}
	info = guestproto.FileInfo{}
	must(t, c.call(guestproto.KindFileStat, guestproto.FileRequest{Path: link, User: self(), Follow: true}, &info))
	if info.Type != guestproto.TypeFile || info.User != "root" || info.Group != "root" || info.Size == 0 {
		t.Errorf("%+v", info)
	}
}

func TestMkdirLinkChmod(t *testing.T) {
	c, dir := start(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	wantError(t, c.do(guestproto.KindFileMkdir, guestproto.FileRequest{Path: at("a/b"), User: self()}), "user", "not_found")
	must(t, c.do(guestproto.KindFileMkdir, guestproto.FileRequest{Path: at("a/b"), User: self(), Parents: true, Mode: 0o1777}))
	must(t, c.do(guestproto.KindFileMkdir, guestproto.FileRequest{Path: at("a/b"), User: self(), Parents: true}))
	wantError(t, c.do(guestproto.KindFileMkdir, guestproto.FileRequest{Path: at("a/b"), User: self()}), "user", "already_exists")
	must(t, os.WriteFile(at("f"), nil, 0o644))
	wantError(t, c.do(guestproto.KindFileMkdir, guestproto.FileRequest{Path: at("f/x"), User: self(), Parents: true}), "user", "invalid_argument")
	if st, _ := os.Stat(at("a/b")); st.Mode().Perm() != 0o777 || st.Mode()&os.ModeSticky == 0 {
		t.Errorf("mode %v", st.Mode())
	}

	must(t, c.do(guestproto.KindFileLink, guestproto.FileRequest{Path: at("s"), To: "any text", User: self(), Symbolic: true}))
	must(t, c.do(guestproto.KindFileLink, guestproto.FileRequest{Path: at("h"), To: at("f"), User: self()}))
	wantError(t, c.do(guestproto.KindFileLink, guestproto.FileRequest{Path: at("h"), To: at("f"), User: self()}), "user", "already_exists")
	if target, _ := os.Readlink(at("s")); target != "any text" {
		t.Errorf("link to %q", target)
	}
	if st, _ := os.Stat(at("h")); st.Sys() == nil {
		t.Error("no hard link")
	}

	must(t, os.Symlink("/etc/passwd", at("a/passwd")))
	must(t, os.WriteFile(at("a/x"), nil, 0o644))
	before, _ := os.Stat("/etc/passwd")
	must(t, c.do(guestproto.KindFileChmod, guestproto.FileRequest{Path: at("a"), User: self(), SetMode: true, Mode: 0o700, Recursive: true}))
	after, _ := os.Stat("/etc/passwd")
	if st, _ := os.Stat(at("a/x")); st.Mode().Perm() != 0o700 || before.Mode() != after.Mode() {
		t.Errorf("recursive chmod: %v, through the link: %v", st.Mode(), after.Mode())
	}
	wantError(t, c.do(guestproto.KindFileChmod, guestproto.FileRequest{Path: at("a"), User: self(), SetOwner: true, Owner: "nobody-here"}), "user", "not_found")
}

func TestMove(t *testing.T) {
	c, dir := start(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("a"), []byte("a"), 0o644))
	must(t, os.WriteFile(at("b"), []byte("b"), 0o644))
	move := func(from, to string, over bool) error {
		return c.do(guestproto.KindFileMove, guestproto.FileRequest{Path: from, To: to, User: self(), Overwrite: over})
	}
	wantError(t, move(at("a"), at("b"), false), "user", "already_exists")
	must(t, move(at("a"), at("b"), true))
	if got, _ := os.ReadFile(at("b")); string(got) != "a" {
		t.Errorf("%q", got)
	}
	wantError(t, move(at("none"), at("x"), false), "user", "not_found")
	wantError(t, move(at("b"), at("none/x"), false), "user", "not_found")
	wantError(t, move("/", at("x"), false), "user", "invalid_argument")
	leftovers(t, dir, 1)
}

func TestMoveAcrossFileSystems(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "dsec-test-")
	if err != nil {
		t.Skipf("no second file system: %v", err)
	}
	defer os.RemoveAll(shm)
	c, dir := start(t), t.TempDir()
	if err := os.Rename(shm, filepath.Join(dir, "x")); err == nil {
		t.Skip("/dev/shm and the temporary directory are one file system")
	}
	src := filepath.Join(shm, "src")
	must(t, os.MkdirAll(filepath.Join(src, "d"), 0o750))
	must(t, os.WriteFile(filepath.Join(src, "d/f"), make([]byte, 300_000), 0o640))
	must(t, os.Link(filepath.Join(src, "d/f"), filepath.Join(src, "d/g")))
	must(t, os.Symlink("d/f", filepath.Join(src, "l")))
	dst := filepath.Join(dir, "dst")
	must(t, c.do(guestproto.KindFileMove, guestproto.FileRequest{Path: src, To: dst, User: self()}))
	a, err := os.Stat(filepath.Join(dst, "d/f"))
	must(t, err)
	b, err := os.Stat(filepath.Join(dst, "d/g"))
	must(t, err)
	if target, _ := os.Readlink(filepath.Join(dst, "l")); a.Mode() != 0o640 || !os.SameFile(a, b) || target != "d/f" {
		t.Errorf("%v, one file: %v, link %q", a.Mode(), os.SameFile(a, b), target)
	}
	leftovers(t, shm, 0)
	leftovers(t, dir, 1)
	must(t, os.WriteFile(src, []byte("file"), 0o600))
	wantError(t, c.do(guestproto.KindFileMove, guestproto.FileRequest{Path: src, To: filepath.Join(dst, "l"), User: self()}), "user", "already_exists")
	must(t, c.do(guestproto.KindFileMove, guestproto.FileRequest{Path: src, To: filepath.Join(dst, "l"), User: self(), Overwrite: true}))
	if got, _ := os.ReadFile(filepath.Join(dst, "l")); string(got) != "file" {
		t.Errorf("%q", got)
	}
}

func TestRemove(t *testing.T) {
	c, dir := start(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	remove := func(path string, recursive bool) error {
		return c.do(guestproto.KindFileRemove, guestproto.FileRequest{Path: path, User: self(), Recursive: recursive})
	}
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "keep"), nil, 0o644))
	must(t, os.MkdirAll(at("d/e"), 0o755))
	must(t, os.Symlink(outside, at("d/e/out")))
	wantError(t, remove(at("none"), true), "user", "not_found")
	wantError(t, remove(at("d"), false), "user", "conflict")
	wantError(t, remove("/", true), "user", "invalid_argument")
	wantError(t, remove(dir+"/d/..", true), "user", "invalid_argument")
	must(t, remove(at("d"), true))
	leftovers(t, outside, 1)

	// Deeper than paths can be long, and than descriptors are many.
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 3000 {
		must(t, unix.Mkdirat(fd, "deep", 0o755))
		next, err := unix.Openat(fd, "deep", unix.O_PATH|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	must(t, remove(at("deep"), true))
	leftovers(t, dir, 0)
}
