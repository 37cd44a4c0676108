package files

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

func TestIdentity(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir, err := os.MkdirTemp("/tmp", "dsec-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("secret"), []byte("s"), 0o600))
	must(t, os.WriteFile(at("public"), []byte("p"), 0o644))
	must(t, os.Mkdir(at("home"), 0o755))
	must(t, os.Chown(at("home"), 1234, 1234))

	_, _, err = c.read(guestproto.FileRequest{Path: at("secret"), User: "1234", Length: -1})
	wantError(t, err, "user", "forbidden")
	_, got, err := c.read(guestproto.FileRequest{Path: at("public"), User: "1234", Length: -1})
	if err != nil || string(got) != "p" {
		t.Errorf("%q %v", got, err)
	}
	_, err = c.write(guestproto.FileRequest{Path: at("new"), User: "1234", Size: -1}, nil)
	wantError(t, err, "user", "forbidden")
	info, err := c.write(guestproto.FileRequest{Path: at("home/f"), User: "1234", Size: -1}, []byte("mine"))
	if err != nil || info.UID != 1234 || info.GID != 1234 {
		t.Errorf("%+v %v", info, err)
	}
	// A file in one's own directory that one may not write is not replaced.
	must(t, os.WriteFile(at("home/roots"), []byte("r"), 0o644))
	_, err = c.write(guestproto.FileRequest{Path: at("home/roots"), User: "1234", Size: -1}, nil)
	wantError(t, err, "user", "forbidden")
	// Root replaces a user's file, and it stays the user's.
	info, err = c.write(guestproto.FileRequest{Path: at("home/f"), User: "root", Size: -1}, []byte("root's"))
	if err != nil || info.UID != 1234 {
		t.Errorf("%+v %v", info, err)
	}
	for _, tc := range []struct {
		kind guestproto.Kind
		req  guestproto.FileRequest
	}{
		{guestproto.KindFileMkdir, guestproto.FileRequest{Path: at("d")}}, {guestproto.KindFileRemove, guestproto.FileRequest{Path: at("public")}},
		{guestproto.KindFileMove, guestproto.FileRequest{Path: at("public"), To: at("home/p")}}, {guestproto.KindFileLink, guestproto.FileRequest{Path: at("l"), To: "x", Symbolic: true}},
		{guestproto.KindFileChmod, guestproto.FileRequest{Path: at("public"), SetMode: true, Mode: 0o666}},
		{guestproto.KindFileChmod, guestproto.FileRequest{Path: at("home/f"), SetOwner: true, Owner: "0"}},
	} {
		tc.req.User = "1234"
		wantError(t, c.do(tc.kind, tc.req), "user", "forbidden")
	}
	must(t, c.do(guestproto.KindFileChmod, guestproto.FileRequest{Path: at("public"), User: "root", SetOwner: true, Owner: "1234:7"}))
	var st unix.Stat_t
	must(t, unix.Stat(at("public"), &st))
	if st.Uid != 1234 || st.Gid != 7 {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
}

// TestPlantedLink: root does not write where another user's link in a sticky directory leads.
func TestPlantedLink(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir, err := os.MkdirTemp("/tmp", "dsec-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("safe"), 0o644))
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	must(t, os.Chown(dir, 1, 1))
	must(t, os.Symlink(victim, filepath.Join(dir, "f")))
	must(t, os.Lchown(filepath.Join(dir, "f"), 1234, 1234))
	_, err = c.write(guestproto.FileRequest{Path: filepath.Join(dir, "f"), User: "root", Size: -1}, []byte("x"))
	wantError(t, err, "user", "forbidden")
	if got, _ := os.ReadFile(victim); string(got) != "safe" {
		t.Errorf("%q", got)
	}
}

// TestThreadsComeBack: after many switches every thread is who the process is.
func TestThreadsComeBack(t *testing.T) {
	needRoot(t)
	w := New()
	var wg sync.WaitGroup
	for i := range uint32(64) {
		wg.Go(func() {
			who := identity{uid: 2000 + i, gid: 3000 + i, groups: []uint32{4000 + i}}
			for range 50 {
				err := w.threads.run(who, func() error {
					uid, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0)
					gid, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ^uintptr(0), 0, 0)
					groups, err := unix.Getgroups()
					if err != nil || uint32(uid) != who.uid || uint32(gid) != who.gid || len(groups) != 1 || uint32(groups[0]) != 4000+i {
						t.Errorf("as %+v: %d %d %v %v", who, uid, gid, groups, err)
					}
					return nil
				})
				must(t, err)
			}
		})
	}
	wg.Wait()
	w.Close()
	tasks, err := os.ReadDir("/proc/self/task")
	must(t, err)
	for _, task := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			continue // ended meanwhile
		}
		if want := "Uid:\t0\t0\t0\t0"; !bytes.Contains(status, []byte(want)) {
			t.Errorf("thread %s is not root again:\n%s", task.Name(), status)
		}
	}
}

func TestUsers(t *testing.T) {
	var u users
	for name, uid := range map[string]uint32{"": 0, "root": 0, "daemon": 1, "1": 1, "54321": 54321} {
		a, err := u.find(name)
		if err != nil || a.uid != uid {
			t.Errorf("%q: %+v %v", name, a, err)
		}
	}
	for _, name := range []string{"no such", "-1", "4294967295", "1x"} {
		if _, err := u.find(name); err == nil {
			t.Errorf("%q was found", name)
		}
	}
	for owner, want := range map[string][2]int{"root": {0, -1}, "root:daemon": {0, 1}, ":12": {-1, 12}, "7:8": {7, 8}} {
		uid, gid, err := u.owner(owner)
		if err != nil || uid != want[0] || gid != want[1] {
			t.Errorf("%q: %d:%d %v", owner, uid, gid, err)
		}
	}
	if _, _, err := u.owner(":"); err == nil {
		t.Error("an empty owner was taken")
	}
}
