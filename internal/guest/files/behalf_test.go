package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// TestOnBehalf: root's power, the user's files.
func TestOnBehalf(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir, err := os.MkdirTemp("/tmp", "dsec-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	owner := func(name string) uint32 {
		var st unix.Stat_t
		must(t, unix.Lstat(at(name), &st))
		return st.Uid
	}
	req := func(r guestproto.FileRequest) guestproto.FileRequest {
		r.User, r.Behalf, r.Size, r.Length = "1234", true, -1, -1
		return r
	}
	must(t, os.WriteFile(at("roots"), []byte("much longer than what comes"), 0o600))
	must(t, os.Link(at("roots"), at("hard")))

	// What only root may read is read, and written in place: other names of the file see it.
	if _, got, err := c.read(req(guestproto.FileRequest{Path: at("roots")})); err != nil || len(got) == 0 {
		t.Errorf("%q %v", got, err)
	}
	if _, err := c.write(req(guestproto.FileRequest{Path: at("roots")}), []byte("new")); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(at("hard")); string(got) != "new" || owner("hard") != 1234 {
		t.Errorf("%q of %d", got, owner("hard"))
	}
	// What cannot fit is refused before the old content is touched.
	large := req(guestproto.FileRequest{Path: at("roots")})
	large.Size = 1 << 60
	if _, err := c.write(large, []byte("x")); err == nil {
		t.Error("an exbibyte fits")
	}
	if got, _ := os.ReadFile(at("hard")); string(got) != "new" {
		t.Errorf("a refused write left %q", got)
	}
	// New files, and the directories on their way, are the user's; those that were there are not.
	info, err := c.write(req(guestproto.FileRequest{Path: at("a/b/f"), Parents: true}), []byte("x"))
	if err != nil || info.UID != 1234 || info.Mode != 0o644 || owner("a") != 1234 || owner("a/b") != 1234 || owner(".") != 0 {
		t.Errorf("%+v %v", info, err)
	}
	must(t, c.do(guestproto.KindFileMkdir, req(guestproto.FileRequest{Path: at("m/n"), Parents: true})))
	must(t, c.do(guestproto.KindFileMove, req(guestproto.FileRequest{Path: at("a/b/f"), To: at("o/p/f"), Overwrite: true})))
	if owner("m") != 1234 || owner("m/n") != 1234 || owner("o/p") != 1234 || owner("o/p/f") != 1234 {
		t.Error("not all belongs to the user")
	}
	_, err = c.write(req(guestproto.FileRequest{Path: at("m/n")}), nil)
	wantError(t, err, "user", "invalid_argument")
	must(t, unix.Mkfifo(at("fifo"), 0o666))
	_, err = c.write(req(guestproto.FileRequest{Path: at("fifo")}), nil)
	wantError(t, err, "user", "invalid_argument")

	// Links say where they lead.
	must(t, os.Symlink("o/p", at("link")))
	must(t, os.Symlink("nowhere", at("broken")))
	must(t, c.call(guestproto.KindFileStat, req(guestproto.FileRequest{Path: at("link")}), info))
	if info.Type != guestproto.TypeSymlink || info.Target != "o/p" || info.LeadsTo != at("o/p") || info.LeadsToType != guestproto.TypeDir {
		t.Errorf("%+v", info)
	}
	found := map[string]guestproto.FileInfo{}
	must(t, c.list(req(guestproto.FileRequest{Path: dir}), func(i guestproto.FileInfo) { found[i.Name] = i }))
	if found["link"].LeadsTo != at("o/p") || found["broken"].LeadsTo != "" || found["broken"].Type != guestproto.TypeSymlink {
		t.Errorf("%+v", found)
	}
	// A user without an entry has no home but the root.
	must(t, c.call(guestproto.KindFileStat, req(guestproto.FileRequest{Path: "tmp/../tmp"}), info))
	if info.Path != "/tmp" {
		t.Errorf("%+v", info)
	}
}

// TestBehalfLeavesNothing of a write that fails: no part of what came, and no empty file.
func TestBehalfLeavesNothing(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir := t.TempDir()
	must(t, unix.Mount("dsec-test", dir, "tmpfs", 0, "size=4m,mode=755"))
	defer unix.Unmount(dir, unix.MNT_DETACH)
	must(t, os.Mkdir(filepath.Join(dir, "mine"), 0o755))
	must(t, os.Symlink("mine", filepath.Join(dir, "planted")))
	for _, name := range []string{"mine", "planted"} {
		must(t, os.Lchown(filepath.Join(dir, name), 1234, 1234))
	}
	must(t, os.WriteFile(filepath.Join(dir, "old"), make([]byte, 1000), 0o600))
	free := func() uint64 {
		var st unix.Statfs_t
		must(t, unix.Statfs(dir, &st))
		return st.Bfree
	}
	before := free()
	for _, name := range []string{"new", "old", "mine/new", "planted/new"} {
		for _, size := range []int64{-1, 1 << 60, 9} { // does not fit, cannot fit, ends early
			data := make([]byte, 8<<20)
			if size == 9 {
				data = data[:5]
			}
			req := guestproto.FileRequest{Path: filepath.Join(dir, name), User: "1234", Behalf: true, Size: size}
			if _, err := c.write(req, data); err == nil {
				t.Errorf("%s of %d bytes was written", name, size)
			}
			if st, err := os.Stat(req.Path); name != "old" && !os.IsNotExist(err) {
				t.Errorf("%s of %d bytes stays: %v %v", name, size, st, err)
			}
		}
	}
	if after := free(); after < before {
		t.Errorf("%d blocks are taken", before-after)
	}
	if _, err := c.write(guestproto.FileRequest{Path: filepath.Join(dir, "planted/new"), User: "1234", Behalf: true, Size: -1}, make([]byte, 3<<20)); err != nil {
		t.Error(err)
	}
}

// TestBehalfIsNotLed: a planted link does not lead root's power.
func TestBehalfIsNotLed(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir, err := os.MkdirTemp("/tmp", "dsec-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("safe"), 0o600))
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	must(t, os.Symlink(victim, filepath.Join(dir, "f")))
	must(t, os.Lchown(filepath.Join(dir, "f"), 1234, 1234))
	_, err = c.write(guestproto.FileRequest{Path: filepath.Join(dir, "f"), User: "1234", Behalf: true, Size: -1}, []byte("x"))
	wantError(t, err, "user", "forbidden")
	if got, _ := os.ReadFile(victim); string(got) != "safe" {
		t.Errorf("%q", got)
	}
}

// TestBehalfFollows: root's power goes through root's links, and not through those that the user can
// make: they lead as far as the user could go himself.
func TestBehalfFollows(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir, err := os.MkdirTemp("/tmp", "dsec-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	const user = 1234
	mkdir := func(name string, uid int) {
		must(t, os.Mkdir(at(name), 0o755))
		must(t, os.Chown(at(name), uid, uid))
	}
	link := func(target, name string, uid int) {
		must(t, os.Symlink(target, at(name)))
		must(t, os.Lchown(at(name), uid, uid))
	}
	mkdir("root", 0)
	mkdir("home", user)
	mkdir("home/sub", user)
	must(t, os.WriteFile(at("root/secret"), []byte("safe"), 0o600))
	must(t, os.WriteFile(at("root/shared"), []byte("old"), 0o666))
	must(t, os.Chmod(at("root/shared"), 0o666))
	must(t, os.WriteFile(at("home/mine"), []byte("old"), 0o644))
	must(t, os.Chown(at("home/mine"), user, user))
	link("root", "official", 0) // root's, where the user cannot put any
	link(at("root", "secret"), "absolute", 0)
	link("../root/secret", "home/f", user) // planted
	link("../root", "home/d", user)        // planted, on the way
	link("../root/secret", "home/kept", 0) // root's, but the user may have put it here
	link("../root/new", "home/dangling", user)
	link("mine", "home/own", user)
	link("sub", "home/tree", user)
	link("../root/shared", "home/shared", user)
	link("loop", "home/loop", user)
	link("rootloop", "rootloop", 0)

	write := func(name string, parents bool) error {
		_, err := c.write(guestproto.FileRequest{Path: dir + "/" + name, User: "1234", Behalf: true, Size: -1, Parents: parents}, []byte("new"))
		return err
	}
	for _, name := range []string{"home/f", "home/d/secret", "home/d/created", "home/kept", "home/dangling", "home/sub/../f", "home//./f"} {
		wantError(t, write(name, false), "user", "forbidden")
	}
	wantError(t, write("home/d/x/y/z", true), "user", "forbidden")
	for _, r := range []guestproto.FileRequest{{Path: at("home/d/dir")}, {Path: at("home/d/a/b"), Parents: true}} {
		r.User, r.Behalf = "1234", true
		wantError(t, c.do(guestproto.KindFileMkdir, r), "user", "forbidden")
	}
	for _, name := range []string{"home/loop", "rootloop"} {
		if write(name, false) == nil {
			t.Errorf("%s was written", name)
		}
	}
	wantError(t, write("home/nowhere/f", false), "user", "not_found")
	wantError(t, write("home/mine/f", true), "user", "invalid_argument")
	if got, _ := os.ReadFile(at("root/secret")); string(got) != "safe" {
		t.Fatalf("%q", got)
	}
	if names, _ := os.ReadDir(at("root")); len(names) != 2 {
		t.Errorf("%v", names)
	}
	for name, want := range map[string]struct {
		file  string
		owner uint32
	}{
		"official/secret":  {"root/secret", user}, // what root's links lead to is the user's then, as any other file
		"absolute":         {"root/secret", user},
		"official/a/b/new": {"root/a/b/new", user},
		"home/own":         {"home/mine", user},
		"home/tree/n/new":  {"home/sub/n/new", user},
		"home/shared":      {"root/shared", 0}, // writable for the user, but not to be his by a link
	} {
		must(t, write(name, true))
		var st unix.Stat_t
		must(t, unix.Stat(at(want.file), &st))
		if got, _ := os.ReadFile(at(want.file)); string(got) != "new" || st.Uid != want.owner {
			t.Errorf("%s: %q of %d", name, got, st.Uid)
		}
	}
}

// TestBehalfIsNotRaced: a user who swaps a directory for a link while root's power goes through gains nothing.
func TestBehalfIsNotRaced(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir, err := os.MkdirTemp("/tmp", "dsec-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	root, home := filepath.Join(dir, "root"), filepath.Join(dir, "home")
	for _, d := range []string{root, home, filepath.Join(home, "d")} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(root, "f"), []byte("safe"), 0o600))
	planted := filepath.Join(home, "l")
	must(t, os.Symlink("../root", planted))
	for _, p := range []string{home, filepath.Join(home, "d"), planted} {
		must(t, os.Lchown(p, 1234, 1234))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(home, "d"), unix.AT_FDCWD, planted, unix.RENAME_EXCHANGE)
			}
		}
	}()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		_, _ = c.write(guestproto.FileRequest{Path: filepath.Join(home, "d", "f"), User: "1234", Behalf: true, Size: -1}, []byte("x"))
		_, _ = c.write(guestproto.FileRequest{Path: filepath.Join(home, "d", "new", "f"), User: "1234", Behalf: true, Size: -1, Parents: true}, []byte("x"))
	}
	close(stop)
	<-stopped
	names, _ := os.ReadDir(root)
	if got, _ := os.ReadFile(filepath.Join(root, "f")); string(got) != "safe" || len(names) != 1 {
		t.Errorf("%q %v", got, names)
	}
}

// TestBehalfIsWatched: writing into a file is a write to those who watch, not a new file.
func TestBehalfIsWatched(t *testing.T) {
	c := start(t)
	needRoot(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o644))
	_, events := c.watch(dir, false)
	_, err := c.write(guestproto.FileRequest{Path: filepath.Join(dir, "f"), User: self(), Behalf: true, Size: -1}, []byte("new"))
	must(t, err)
	for {
		select {
		case e := <-events:
			if e.Kind == "create" {
				t.Fatalf("%+v", e)
			}
			if e.Kind == "write" && e.Path == "f" {
				return
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no write was told")
		}
	}
}

// TestAttrs: those below the prefix are replaced as a whole, others stay.
func TestAttrs(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	must(t, os.WriteFile(file, nil, 0o600))
	if err := unix.Setxattr(file, "user.a.old", []byte("1"), 0); err != nil {
		t.Skipf("the directory of tests keeps no attributes: %v", err)
	}
	must(t, unix.Setxattr(file, "user.b", []byte("2"), 0))
	req := guestproto.FileRequest{Path: file, User: "1234", Behalf: true, Size: -1, AttrPrefix: "user.a.", Attrs: []string{"new=x=y"}}
	if info, err := c.write(req, []byte("x")); err != nil || len(info.Attrs) != 1 {
		t.Fatalf("%+v %v", info, err)
	}
	var info guestproto.FileInfo
	must(t, c.call(guestproto.KindFileStat, guestproto.FileRequest{Path: file, User: "1234", Behalf: true, AttrPrefix: "user."}, &info))
	if got := info.Attrs; len(got) != 2 || !slices.Contains(got, "a.new=x=y") || !slices.Contains(got, "b=2") {
		t.Errorf("%q", got)
	}
	req.Attrs = []string{strings.Repeat("n", 300) + "=x"}
	_, err := c.write(req, nil)
	wantError(t, err, "user", "invalid_argument")
}
