package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func sample(t testing.TB) []file {
	t.Helper()
	suid := reg("usr/bin/tool", strings.Repeat("tool\n", 3000))
	suid.h.Mode = 0o4755
	return []file{dir("usr"), dir("usr/bin"), suid, link("usr/bin/alias", "usr/bin/tool"), symlink("bin", "usr/bin"),
		reg("etc/empty", ""), reg("name with\nnewline", "1"), reg("not utf-8 \xff\xfe", "2"), reg("dir/sparse", strings.Repeat("\x00", 300000)+"e"),
		{tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o600}, ""}}
}

func TestDigestIsOfTheContentAlone(t *testing.T) {
	s := open(t, Options{Format: Dir})
	files := sample(t)
	a, err := writeTar(s, WriteOptions{}, archive(t, files...))
	if err != nil {
		t.Fatal(err)
	}
	again, err := writeTar(s, WriteOptions{}, archive(t, files...))
	if err != nil || again.Digest != a.Digest || again.Path != a.Path || !again.Created.Equal(a.Created) {
		t.Errorf("again: %+v, %v", again, err)
	}
	// Another order, a file for the link: nobody in a box can tell.
	other := slices.Clone(files)
	other[3] = suidCopy(files[2])
	slices.Reverse(other[5:])
	elsewhere, err := writeTar(open(t, Options{Format: Dir}), WriteOptions{}, archive(t, other...))
	if err != nil || elsewhere.Digest != a.Digest {
		t.Errorf("elsewhere: %s, %v", elsewhere.Digest, err)
	}
	copied, err := open(t, Options{Format: Dir}).Write(context.Background(), WriteOptions{}, func(w *Writer) error { return w.AddDir(a.Path) })
	if err != nil || copied.Digest != a.Digest {
		t.Errorf("copied from the directory: %s, %v", copied.Digest, err)
	}
	seen := map[string]string{a.Digest: "original"}
	for name, change := range map[string]func(f []file){
		"content":  func(f []file) { f[5].data = "x" },
		"mode":     func(f []file) { f[5].h.Mode = 0o600 },
		"name":     func(f []file) { f[5].h.Name = "etc/other" },
		"target":   func(f []file) { f[4].h.Linkname = "usr" },
		"type":     func(f []file) { f[5] = dir("etc/empty") },
		"new file": func(f []file) { f[1] = reg("usr/new", "") },
	} {
		changed := slices.Clone(files)
		change(changed)
		in, err := writeTar(s, WriteOptions{}, archive(t, changed...))
		if err != nil {
			t.Fatal(name, err)
		}
		if was, ok := seen[in.Digest]; ok {
			t.Errorf("%s gives the digest of %s", name, was)
		}
		seen[in.Digest] = name
	}
}

func suidCopy(f file) file {
	f.h.Name = "usr/bin/alias"
	return f
}

func TestEROFSHoldsTheSame(t *testing.T) {
	needRoot(t)
	if err := ProbeEROFS(t.TempDir()); err != nil {
		t.Skip("this kernel does not mount EROFS images from files:", err)
	}
	before := mounts(t)
	asDir, asImage := open(t, Options{Format: Dir}), open(t, Options{Format: EROFS})
	owned := reg("owned", "o")
	owned.h.Uid, owned.h.Gid = 1000, 33
	caps := reg("caps", "c")
	caps.h.PAXRecords = map[string]string{paxXattr + "user.a": "b", paxXattr + xattrCaps: "\x01\x00\x00\x02" + strings.Repeat("\x00", 16)}
	b := archive(t, append(sample(t), owned, caps, reg(".wh.gone", ""), dir("op"), reg("op/.wh..wh..opq", ""))...)
	d, err := writeTar(asDir, WriteOptions{Whiteouts: true}, b)
	if err != nil {
		t.Fatal(err)
	}
	e, err := writeTar(asImage, WriteOptions{Whiteouts: true}, b)
	if err != nil {
		t.Fatal(err)
	}
	if d.Digest != e.Digest || e.Format != EROFS {
		t.Fatalf("dir %s, image %s (%s)", d.Digest, e.Digest, e.Format)
	}
	// Verify reads the image through the kernel.
	if err := asImage.Verify(context.Background(), e.Digest); err != nil {
		t.Error(err)
	}
	f, err := e.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, got := contents(t, d.Path), contents(t, fdPath(int(f.Fd()))+"/.")
	if !equal(got, want) {
		t.Errorf("image shows %v", got)
	}
	if after := mounts(t); after != before {
		t.Error("the mount table changed")
	}
}

// An image cannot say that two names are one file: a tree that lives on that
// stays a directory.
func TestManyLinksStayADirectory(t *testing.T) {
	s := open(t, Options{Format: EROFS})
	files := []file{reg("busybox", strings.Repeat("applets", 300000))}
	for i := range 20 {
		files = append(files, link(fmt.Sprintf("applet%d", i), "busybox"))
	}
	in, err := writeTar(s, WriteOptions{NoSync: true}, archive(t, files...))
	if err != nil || in.Format != Dir || in.Entries != 22 {
		t.Fatalf("%+v, %v", in, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(in.Path, "applet7"), &st); err != nil || st.Nlink != 21 {
		t.Errorf("links %d, %v", st.Nlink, err)
	}
}

func mounts(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOverlayObeysTheMarks(t *testing.T) {
	needRoot(t)
	for _, format := range []Format{Dir, EROFS} {
		t.Run(string(format), func(t *testing.T) {
			s := open(t, Options{Format: format})
			if format == EROFS {
				if err := ProbeEROFS(t.TempDir()); err != nil {
					t.Skip("this kernel does not mount EROFS images from files:", err)
				}
			}
			low, err := writeTar(s, WriteOptions{}, archive(t, reg("a/old", "1"), reg("b/old", "1"), reg("gone", "1"), reg("kept", "1")))
			if err != nil {
				t.Fatal(err)
			}
			up, err := writeTar(s, WriteOptions{Whiteouts: true}, archive(t, dir("a"), reg("a/.wh..wh..opq", ""), reg("a/new", "2"), reg("b/.wh.old", ""), reg(".wh.gone", "")))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"a": "dir", "a/new": "2", "b": "dir", "kept": "1"}
			if got := contents(t, overlay(t, up, low)+"/."); !equal(got, want) {
				t.Errorf("the kernel shows %v", got)
			}
			v, err := OpenView([]Info{up, low})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			for name, there := range map[string]bool{"a/new": true, "a/old": false, "b/old": false, "gone": false, "kept": true, "b": true} {
				if _, err := v.Stat(name); (err == nil) != there {
					t.Errorf("view: %s: %v", name, err)
				}
			}
		})
	}
}

// overlay mounts layers, top first, and gives a path that shows them.
func overlay(t *testing.T, layers ...Info) string {
	t.Helper()
	fsfd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fsfd)
	for _, in := range layers {
		f, err := in.Open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if err := unix.FsconfigSetFd(fsfd, "lowerdir+", int(f.Fd())); err != nil {
			t.Skip("this kernel's overlay takes no descriptors:", err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(m) })
	return fdPath(m)
}

func TestViewFollowsLinksInsideTheStack(t *testing.T) {
	s := open(t, Options{Format: Dir})
	low, err := writeTar(s, WriteOptions{}, archive(t, symlink("bin", "/usr/bin"), symlink("usr/bin/sh", "../../opt/sh"), symlink("loop", "loop"), symlink("out", "../../../../etc/passwd")))
	if err != nil {
		t.Fatal(err)
	}
	up, err := writeTar(s, WriteOptions{}, archive(t, reg("opt/sh", "shell"), reg("etc/passwd", "own")))
	if err != nil {
		t.Fatal(err)
	}
	v, err := OpenView([]Info{up, low})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for name, want := range map[string]string{"bin/sh": "shell", "/usr/bin/sh": "shell", "out": "own", "loop": "", "opt/none": "", "opt/sh/x": "", "opt": ""} {
		got, _, err := v.ReadFile(name, 100)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s = %q, %v", name, got, err)
		}
	}
}

func TestConcurrentWritesOfOneLayer(t *testing.T) {
	s := open(t, Options{Format: Dir})
	b := archive(t, sample(t)...)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			other, err := Open(s.dir, Options{Format: Dir}) // as another process does
			if err == nil {
				_, err = writeTar(other, WriteOptions{}, b)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all, err := s.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d layers, %v", len(all), err)
	}
	if left := contents(t, filepath.Join(s.dir, "tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCancelledWriteLeavesNothing(t *testing.T) {
	s := open(t, Options{Format: Dir})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Write(ctx, WriteOptions{}, func(w *Writer) error {
		if err := w.AddTar(bytes.NewReader(archive(t, reg("a", "x")))); err != nil {
			return err
		}
		cancel()
		return w.AddTar(bytes.NewReader(archive(t, reg("b", "x"))))
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	if all, _ := s.List(); len(all) > 0 {
		t.Errorf("layers %v", all)
	}
	if left := contents(t, filepath.Join(s.dir, "tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A process that is killed while it writes: the next one that opens the store
// finds nothing of it, and leaves a live writer alone.
func TestKilledWriterIsSweptUp(t *testing.T) {
	if dir := os.Getenv("DSEC_TEST_STORE"); dir != "" {
		s, err := Open(dir, Options{Format: Dir})
		if err != nil {
			t.Fatal(err)
		}
		s.Write(t.Context(), WriteOptions{}, func(w *Writer) error {
			w.AddTar(bytes.NewReader(archive(t, sample(t)...)))
			fmt.Println("half-made")
			time.Sleep(time.Minute)
			return nil
		})
		return
	}
	s := open(t, Options{Format: Dir})
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriterIsSweptUp$")
	cmd.Env = append(os.Environ(), "DSEC_TEST_STORE="+s.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	if _, err := out.Read(buf); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(s.dir, "tmp")
	if _, err := Open(s.dir, Options{}); err != nil || len(contents(t, tmp)) == 0 {
		t.Error("a live writer's work was removed")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if len(contents(t, tmp)) == 0 {
		t.Error("nothing was half-made")
	}
	if _, err := Open(s.dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if left := contents(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCollect(t *testing.T) {
	s := open(t, Options{Format: Dir})
	var digests []string
	for _, name := range []string{"used", "cached", "below", "loose"} {
		in, err := writeTar(s, WriteOptions{}, archive(t, reg(name, name)))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, in.Digest)
	}
	if err := errors.Join(s.SetKey(Key{Key: "k", Layer: digests[1], With: digests[2:3], Until: time.Now().Add(time.Hour)}),
		s.SetKey(Key{Key: "l", Layer: digests[3]})); err != nil {
		t.Fatal(err)
	}
	used := func() (map[string]bool, error) { return map[string]bool{digests[0]: true}, nil }
	release, err := s.Hold()
	if err != nil {
		t.Fatal(err)
	}
	if removed, done, err := s.Collect(used); done || len(removed) > 0 || err != nil {
		t.Errorf("collected while held: %v, %v", removed, err)
	}
	release()
	removed, done, err := s.Collect(used)
	if err != nil || !done || !slices.Equal(removed, digests[3:]) {
		t.Errorf("removed %v, %v, %v", removed, done, err)
	}
	if _, err := s.Get(digests[3]); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("removed layer: %v", err)
	}
	if _, _, ok := s.ByKey("l"); ok {
		t.Error("the key of a removed layer is left")
	}
	if _, _, ok := s.ByKey("k"); !ok {
		t.Error("a kept key is gone")
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	s := open(t, Options{Format: Dir})
	in, err := writeTar(s, WriteOptions{}, archive(t, reg("f", "x")))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), in.Digest); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(in.Path, "f"), []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), in.Digest); err == nil {
		t.Error("damage was not found")
	}
}
