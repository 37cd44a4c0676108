package rootfs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

const base = 2000000

// userNS gives a user namespace with the map that boxes have.
func userNS(t *testing.T) int {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	cmd := exec.Command("/bin/sleep", "100")
	ids := []syscall.SysProcIDMap{{HostID: base, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	if err := cmd.Start(); err != nil {
		t.Skipf("no user namespaces: %v", err)
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err := errors.Join(err, cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// eachRung runs fn with a builder of each kind, whatever this kernel would pick.
func eachRung(t *testing.T, fn func(t *testing.T, b *Builder, userns int)) {
	for _, kind := range []struct {
		name string
		make func(Options) (rung, func() error)
	}{{"detached", newModern}, {"attached", newAttached}} {
		t.Run(kind.name, func(t *testing.T) {
			userns := userNS(t)
			o := Options{Cache: filepath.Join(t.TempDir(), "cache"), Stage: t.TempDir()}
			r, setup := kind.make(o)
			dev, err := newDev()
			if err != nil {
				t.Fatal(err)
			}
			b := &Builder{o: o, dev: dev, rung: r, mounter: newMounter(1, setup)}
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
			if err := b.probe(userns, base); err != nil {
				t.Skipf("not on this kernel: %v", err)
			}
			b.probeTmpfs(userns)
			fn(t, b, userns)
		})
	}
}

func layerOf(t *testing.T, files map[string]string) runtime.Layer {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return runtime.Layer{Path: dir}
}

func area(t *testing.T, dirs ...string) scratch {
	t.Helper()
	dir := t.TempDir()
	for _, d := range dirs {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return scratch{fd}
}

func (t *Tree) find(role guestproto.FDRole, path string) int {
	for i, d := range t.Desc {
		if d.Role == role && d.Path == path {
			return t.FDs[i]
		}
	}
	return -1
}

func owner(t *testing.T, dir int, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st.Uid
}

func TestReadOnlyRoot(t *testing.T) {
	eachRung(t, func(t *testing.T, b *Builder, userns int) {
		top := layerOf(t, map[string]string{"dev/.keep": "", "etc/a": "top"})
		bottom := layerOf(t, map[string]string{"etc/a": "bottom", "etc/b": "bottom"})
		for name, layers := range map[string][]runtime.Layer{"one": {top}, "two": {top, bottom}} {
			tree, err := b.Build(&Spec{UserNS: userns, Base: base, Root: runtime.Root{Layers: layers}})
			if err != nil {
				t.Fatal(err)
			}
			root := tree.find(guestproto.FDRoot, "")
			if got := owner(t, root, "etc/a"); got != base {
				t.Errorf("%s: owner %d, want %d", name, got, base)
			}
			if fd, err := unix.Openat(root, "etc/new", unix.O_CREAT|unix.O_WRONLY, 0o644); !errors.Is(err, unix.EROFS) {
				t.Errorf("%s: created a file: %d, %v", name, fd, err)
			}
			dev := tree.find(guestproto.FDMount, "/dev")
			if err := unix.Mknodat(dev, "x", unix.S_IFREG|0o644, 0); !errors.Is(err, unix.EROFS) {
				t.Errorf("%s: wrote to /dev: %v", name, err)
			}
			tree.Close()
		}
	})
}

func TestWritableRoot(t *testing.T) {
	eachRung(t, func(t *testing.T, b *Builder, userns int) {
		up := area(t, "u", "w")
		tree, err := b.Build(&Spec{UserNS: userns, Base: base, Upper: up, Root: runtime.Root{Layers: []runtime.Layer{
			layerOf(t, map[string]string{"dev/.keep": "", "etc/a": "top"}), layerOf(t, map[string]string{"etc/b": "bottom"}),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		root := tree.find(guestproto.FDRoot, "")
		err = b.mounter.do(base, func() error {
			fd, err := unix.Openat(root, "etc/b", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		})
		if err != nil {
			t.Fatalf("copy up: %v", err)
		}
		if got := owner(t, root, "etc/b"); got != base {
			t.Errorf("owner in the box's view %d, want %d", got, base)
		}
		if got := owner(t, up.fd, "u/etc/b"); got != 0 {
			t.Errorf("owner on disk %d, want 0", got)
		}
	})
}

func TestWritableDirOnDiskAndMissingMountPoints(t *testing.T) {
	eachRung(t, func(t *testing.T, b *Builder, userns int) {
		store := area(t, "d0", "d1")
		data := layerOf(t, map[string]string{"x": "1"}).Path
		file := filepath.Join(data, "x")
		tree, err := b.Build(&Spec{
			UserNS: userns, Base: base, Root: runtime.Root{Layers: []runtime.Layer{layerOf(t, map[string]string{"dev/.keep": "", "home/user/f": ""})}},
			Dirs: []Dir{{store, "d0", "/home"}, {store, "d1", "/srv/deep/er"}},
			Data: []runtime.DataMount{{Source: data, Target: "/data"}, {Source: file, Target: "/etc/x"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		root := tree.find(guestproto.FDRoot, "")
		for _, path := range []string{"srv/deep/er", "data", "etc/x", "home/user/f"} {
			owner(t, root, path)
		}
		if got := owner(t, tree.find(guestproto.FDWritable, "/home"), "."); got != base {
			t.Errorf("owner of a writable directory %d", got)
		}
		mounted := tree.find(guestproto.FDMount, "/data")
		if err := unix.Mknodat(mounted, "y", unix.S_IFREG|0o644, 0); !errors.Is(err, unix.EROFS) {
			t.Errorf("wrote to a data mount: %v", err)
		}
	})
}

// A template or a spec in which a directory meets a file is whose it is at fault, and not the platform.
func TestMountPointsOfTheWrongKind(t *testing.T) {
	eachRung(t, func(t *testing.T, b *Builder, userns int) {
		file := filepath.Join(layerOf(t, map[string]string{"x": "1"}).Path, "x")
		root := runtime.Root{Layers: []runtime.Layer{layerOf(t, map[string]string{"dev/.keep": "", "etc/list/.keep": "", "etc/passwd": ""})}}
		for name, s := range map[string]Spec{
			"a file upon a directory":    {Data: []runtime.DataMount{{Source: file, Target: "/etc/list"}}},
			"a directory upon a file":    {Dirs: []Dir{{area(t, "d"), "d", "/etc/passwd"}}},
			"both at one place":          {Dirs: []Dir{{area(t, "d"), "d", "/new"}}, Data: []runtime.DataMount{{Source: file, Target: "/new"}}},
			"a directory below the file": {Dirs: []Dir{{area(t, "d"), "d", "/new/below"}}, Data: []runtime.DataMount{{Source: file, Target: "/new"}}},
		} {
			s.UserNS, s.Base, s.Root = userns, base, root
			tree, err := b.Build(&s)
			if err == nil {
				tree.Close()
			}
			if e, ok := errors.AsType[*errdefs.Error](err); !ok || e.Class != errdefs.User {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestDataMountRefusesSymlinks(t *testing.T) {
	eachRung(t, func(t *testing.T, b *Builder, userns int) {
		dir := t.TempDir()
		if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		for _, source := range []string{dir + "/link", dir + "/link/ssl", dir + "/absent", "/dev/null"} {
			tree, err := b.Build(&Spec{
				UserNS: userns, Base: base, Root: runtime.Root{Layers: []runtime.Layer{layerOf(t, map[string]string{"dev/.keep": ""})}},
				Data: []runtime.DataMount{{Source: source, Target: "/data"}},
			})
			if err == nil {
				tree.Close()
			}
			if e, ok := errors.AsType[*errdefs.Error](err); !ok || e.Class != errdefs.User {
				t.Errorf("%s: %v", source, err)
			}
		}
	})
}

func TestHostViewMasks(t *testing.T) {
	eachRung(t, func(t *testing.T, b *Builder, userns int) {
		host := layerOf(t, map[string]string{"secret/key": "s", "bin/prog": "p", "file": "f"}).Path
		tree, err := b.Build(&Spec{UserNS: userns, Base: base, Root: runtime.Root{
			HostView: true, Layers: []runtime.Layer{layerOf(t, map[string]string{"dev/.keep": "", "usr/.keep": ""})},
			HostBinds: []runtime.HostBind{{Source: host, Target: "/usr", Masked: []string{"secret", "/file", "absent"}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		if fd := tree.find(guestproto.FDMount, "/usr"); fd < 0 || owner(t, fd, "bin/prog") != 0 {
			t.Error("the bind is absent or id-mapped")
		}
		for path, want := range map[string]bool{"/usr/secret": true, "/usr/file": true, "/usr/absent": false} {
			if got := tree.find(guestproto.FDMount, path) >= 0; got != want {
				t.Errorf("%s masked: %v", path, got)
			}
		}
	})
}

func TestNothingInTheHostsMountTable(t *testing.T) {
	eachRung(t, func(t *testing.T, b *Builder, userns int) {
		tree, err := b.Build(&Spec{UserNS: userns, Base: base, Upper: area(t, "u", "w"), Root: runtime.Root{Layers: []runtime.Layer{
			layerOf(t, map[string]string{"dev/.keep": ""}), layerOf(t, map[string]string{"a": ""})}}})
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		raw, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"dsec-stage", b.o.Stage} {
			if strings.Contains(string(raw), word) {
				t.Errorf("%s is mounted on the host", word)
			}
		}
	})
}
