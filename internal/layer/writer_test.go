package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type file struct {
	h    tar.Header
	data string
}

func reg(name, data string) file {
	return file{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, data}
}
func dir(name string) file {
	return file{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}
func symlink(name, target string) file {
	return file{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, ""}
}
func link(name, target string) file {
	return file{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}, ""}
}
func device(name string, kind byte, major int64) file {
	return file{tar.Header{Typeflag: kind, Name: name, Devmajor: major, Devminor: 3, Mode: 0o666}, ""}
}

func archive(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		f.h.Size = int64(len(f.data))
		f.h.ModTime = time.Unix(1000, 0)
		if err := w.WriteHeader(&f.h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func writeTar(s *Store, o WriteOptions, b []byte) (Info, error) {
	return s.Write(context.Background(), o, func(w *Writer) error { return w.AddTar(bytes.NewReader(b)) })
}

// contents reads a layer as path → what it is.
func contents(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		switch d.Type() {
		case fs.ModeDir:
			out[rel] = "dir"
		case fs.ModeSymlink:
			target, err := os.Readlink(p)
			out[rel] = "-> " + target
			return err
		case 0:
			b, err := os.ReadFile(p)
			out[rel] = string(b)
			return err
		case fs.ModeDevice | fs.ModeCharDevice:
			out[rel] = "whiteout"
		default:
			out[rel] = d.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestHostileArchives(t *testing.T) {
	long := strings.Repeat("d/", 600) + "f"
	for _, c := range []struct {
		name  string
		files []file
		want  map[string]string // nil: the archive is refused
		user  bool              // the error is the archive's fault
	}{
		{"absolute name", []file{reg("/etc/passwd", "x")}, map[string]string{"etc": "dir", "etc/passwd": "x"}, false},
		{"dot dot", []file{reg("../escape", "x")}, nil, true},
		{"dot dot inside", []file{reg("a/../../escape", "x")}, nil, true},
		{"file through an absolute link", []file{symlink("out", "/VICTIM"), reg("out/planted", "x")}, nil, true},
		{"file through a relative link", []file{symlink("out", "../../../../../../VICTIM"), reg("out/planted", "x")}, nil, true},
		{"file through a good link", []file{dir("usr/lib"), symlink("lib", "usr/lib"), reg("lib/f", "x")},
			map[string]string{"usr": "dir", "usr/lib": "dir", "usr/lib/f": "x", "lib": "-> usr/lib"}, false},
		{"file over a link", []file{symlink("f", "/VICTIM/secret"), reg("f", "x")}, map[string]string{"f": "x"}, false},
		{"directory over a link", []file{symlink("d", "/VICTIM"), dir("d"), reg("d/f", "x")}, map[string]string{"d": "dir", "d/f": "x"}, false},
		{"link chain", []file{symlink("a", "b"), symlink("b", "a"), reg("a/f", "x")}, nil, true},
		{"hard link outside", []file{link("h", "/VICTIM/secret")}, nil, true},
		{"hard link by dot dot", []file{link("h", "../../VICTIM/secret")}, nil, true},
		{"hard link through a link", []file{symlink("v", "/VICTIM"), link("h", "v/secret")}, nil, true},
		{"hard link to itself", []file{reg("f", "x"), link("f", "f")}, map[string]string{"f": "x"}, false},
		{"hard link to a directory", []file{dir("d"), link("h", "d")}, nil, true},
		{"hard link", []file{reg("f", "x"), link("h", "f")}, map[string]string{"f": "x", "h": "x"}, false},
		{"file below a file", []file{reg("f", "x"), reg("f/g", "y")}, nil, true},
		{"file over a full directory", []file{reg("d/a/b", "x"), reg("d", "y")}, map[string]string{"d": "y"}, false},
		{"last one wins", []file{reg("f", "first"), reg("f", "second")}, map[string]string{"f": "second"}, false},
		{"file as the root", []file{reg(".", "x")}, nil, true},
		{"link as the root", []file{symlink(".", "/VICTIM")}, nil, true},
		{"devices", []file{device("sda", tar.TypeBlock, 8), device("null", tar.TypeChar, 1), device("fake", tar.TypeChar, 0), reg("f", "x")},
			map[string]string{"f": "x"}, false},
		{"unknown type", []file{{tar.Header{Typeflag: 'Z', Name: "z"}, ""}}, nil, true},
		{"too deep", []file{reg(long, "x")}, nil, true},
		{"name too long", []file{reg(strings.Repeat("n", 256), "x")}, nil, true},
		{"empty parts", []file{reg("a//./b", "")}, map[string]string{"a": "dir", "a/b": ""}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			victim := t.TempDir()
			if err := os.WriteFile(filepath.Join(victim, "secret"), []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			for i := range c.files {
				c.files[i].h.Linkname = strings.ReplaceAll(c.files[i].h.Linkname, "/VICTIM", victim)
			}
			s := open(t, Options{Format: Dir})
			in, err := writeTar(s, WriteOptions{}, archive(t, c.files...))
			if c.want == nil {
				if err == nil {
					t.Fatalf("taken: %v", contents(t, in.Path))
				}
				if e := errdefs.From(err); c.user && e.Class != errdefs.User {
					t.Errorf("class %s: %v", e.Class, err)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if got := contents(t, in.Path); !equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if got := contents(t, victim); !equal(got, map[string]string{"secret": "secret"}) {
				t.Errorf("outside now: %v", got)
			}
			if left := contents(t, filepath.Join(s.dir, "tmp")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func TestLimits(t *testing.T) {
	s := open(t, Options{Format: Dir, Limits: Limits{Bytes: 100, Entries: 3}})
	for name, b := range map[string][]byte{
		"bytes":   archive(t, reg("a", strings.Repeat("x", 60)), reg("b", strings.Repeat("x", 60))),
		"entries": archive(t, reg("a", ""), reg("b", ""), reg("c", ""), reg("d", "")),
	} {
		_, err := writeTar(s, WriteOptions{}, b)
		if !errors.Is(err, &errdefs.Error{Reason: errdefs.TooLarge}) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTruncatedArchive(t *testing.T) {
	s := open(t, Options{Format: Dir})
	b := archive(t, reg("a", strings.Repeat("x", 5000)))
	_, err := writeTar(s, WriteOptions{}, b[:1024])
	if e := errdefs.From(err); err == nil || e.Class != errdefs.User {
		t.Errorf("err = %v", err)
	}
}

func TestSparseContentStaysSparse(t *testing.T) {
	s := open(t, Options{Format: Dir})
	data := strings.Repeat("\x00", 8<<20) + "end"
	in, err := writeTar(s, WriteOptions{}, archive(t, reg("sparse", data), reg("zeros", strings.Repeat("\x00", 1<<20))))
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(in.Path, "sparse"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != int64(len(data)) || st.Blocks*512 > 1<<20 {
		t.Errorf("size %d, on disk %d", st.Size, st.Blocks*512)
	}
	if got := contents(t, in.Path); got["sparse"] != data || len(got["zeros"]) != 1<<20 {
		t.Error("content differs")
	}
}

func TestWhiteouts(t *testing.T) {
	needRoot(t)
	s := open(t, Options{Format: Dir})
	in, err := writeTar(s, WriteOptions{Whiteouts: true}, archive(t,
		reg("etc/.wh.gone", ""), reg("a/.wh..wh..opq", ""), reg("a/new", "x"), reg(".wh..wh.plnk/1", ""),
		reg(".wh.d", ""), reg("d/again", "y"), reg("e/f", "z"), reg(".wh.e", ""), reg("kept", "k"), reg(".wh.kept", "")))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"etc": "dir", "etc/gone": "whiteout", "a": "dir", "a/new": "x", "d": "dir", "d/again": "y", "e": "dir", "e/f": "z", "kept": "k"}
	got := contents(t, in.Path)
	delete(got, ".wh..wh.plnk")
	delete(got, ".wh..wh.plnk/1")
	if !equal(got, want) {
		t.Errorf("got %v", got)
	}
	for name, opaque := range map[string]bool{"a": true, "d": true, "e": true, "etc": false} {
		buf := make([]byte, 8)
		n, err := unix.Lgetxattr(filepath.Join(in.Path, name), xattrOpaque, buf)
		if is := err == nil && string(buf[:n]) == "y"; is != opaque {
			t.Errorf("%s opaque = %v", name, is)
		}
	}
	for _, bad := range []string{".wh..wh..opq", ".wh.", ".wh.."} {
		if _, err := writeTar(s, WriteOptions{Whiteouts: true}, archive(t, reg(bad, ""))); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestAttributes(t *testing.T) {
	needRoot(t)
	s := open(t, Options{Format: Dir})
	caps := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	rev3 := "\x01\x00\x00\x03" + caps[4:] + "\xa0\x86\x01\x00"
	pax := map[string]string{paxXattr + xattrCaps: rev3, paxXattr + "user.kept": "v", paxXattr + xattrOpaque: "y",
		paxXattr + "user.overlay.opaque": "y", paxXattr + "security.selinux": "label", paxXattr + "trusted.x": "t"}
	h := tar.Header{Typeflag: tar.TypeReg, Name: "bin", Mode: 0o6755, Uid: 33, Gid: 44, PAXRecords: pax, Format: tar.FormatPAX}
	far := tar.Header{Typeflag: tar.TypeReg, Name: "far", Mode: 0o600, Uid: 100000, Gid: 70000}
	in, err := writeTar(s, WriteOptions{}, archive(t, file{h, "x"}, file{far, ""}))
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(in.Path, "bin"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode != unix.S_IFREG|0o6755 || st.Uid != 33 || st.Gid != 44 || st.Mtim.Sec != 1000 {
		t.Errorf("mode %o uid %d gid %d time %d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec)
	}
	f, err := os.Open(filepath.Join(in.Path, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	xs, err := readXattrs(int(f.Fd()))
	if err != nil || len(xs) != 2 || xs[0] != (xattr{xattrCaps, caps}) || xs[1] != (xattr{"user.kept", "v"}) {
		t.Errorf("attributes %q, %v", xs, err)
	}
	if err := unix.Stat(filepath.Join(in.Path, "far"), &st); err != nil || st.Uid != nobody || st.Gid != nobody {
		t.Errorf("far ids became %d:%d, %v", st.Uid, st.Gid, err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: owners, whiteouts and mounts")
	}
}
