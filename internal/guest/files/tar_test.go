package files

import (
	stdtar "archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/guest/tar"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

func (c *client) tarIn(dir, user string, archive []byte) (int64, error) {
	c.t.Helper()
	s := c.open(guestproto.KindFileTarIn, guestproto.FileRequest{Path: dir, User: user}, false)
	if _, err := s.Write(archive); err != nil {
		return 0, err
	}
	if err := s.CloseSend(); err != nil {
		return 0, err
	}
	var r guestproto.Reply
	err := s.RecvMessage(&r)
	return r.N, err
}

func (c *client) tarOut(dir string) ([]byte, error) {
	c.t.Helper()
	s := c.open(guestproto.KindFileTarOut, guestproto.FileRequest{Path: dir, User: self()}, true)
	if err := s.RecvMessage(&guestproto.Reply{}); err != nil {
		return nil, err
	}
	return io.ReadAll(s)
}

func archive(t *testing.T, headers ...stdtar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := stdtar.NewWriter(&buf)
	for _, h := range headers {
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		content := []byte("content of " + h.Name)
		if h.Typeflag == stdtar.TypeReg {
			h.Size = int64(len(content))
		}
		must(t, w.WriteHeader(&h))
		if h.Typeflag == stdtar.TypeReg {
			w.Write(content)
		}
	}
	must(t, w.Close())
	return buf.Bytes()
}

func TestTarRoundTrip(t *testing.T) {
	c, src, dst := start(t), t.TempDir(), filepath.Join(t.TempDir(), "made")
	at := func(name string) string { return filepath.Join(src, name) }
	must(t, os.MkdirAll(at("d/closed"), 0o755))
	must(t, os.WriteFile(at("d/closed/f"), []byte("in a read-only directory"), 0o4711))
	must(t, os.Chmod(at("d/closed/f"), 0o711|os.ModeSetuid))
	must(t, os.Chmod(at("d/closed"), 0o555))
	t.Cleanup(func() { os.Chmod(at("d/closed"), 0o755); os.Chmod(filepath.Join(dst, "d/closed"), 0o755) })
	must(t, os.Symlink("../anywhere", at("d/link")))
	must(t, os.Link(at("d/closed/f"), at("hard")))
	must(t, os.WriteFile(at("big"), bytes.Repeat([]byte("b"), 100_000), 0o600))
	must(t, os.WriteFile(at(strings.Repeat("n", 255)), nil, 0o644))
	must(t, os.WriteFile(at("bytes\xff\nline"), []byte("x"), 0o644))
	must(t, unix.Mkfifo(at("fifo"), 0o620))
	must(t, os.Chtimes(at("big"), time.Unix(1000, 0), time.Unix(1000, 0)))
	f, err := os.Create(at("holes"))
	must(t, err)
	_, err = f.WriteAt([]byte("end"), 1<<30)
	must(t, err)
	must(t, f.Close())

	stream, err := c.tarOut(src)
	must(t, err)
	if len(stream) > 1<<20 {
		t.Errorf("the archive of a sparse file has %d bytes", len(stream))
	}
	n, err := c.tarIn(dst, self(), stream)
	if err != nil || n != 10 {
		t.Fatalf("%d entries, %v", n, err)
	}
	var a, b unix.Stat_t
	must(t, unix.Stat(filepath.Join(dst, "d/closed/f"), &a))
	must(t, unix.Stat(filepath.Join(dst, "hard"), &b))
	if a.Ino != b.Ino || a.Mode&0o7777 != 0o4711 {
		t.Errorf("hard link %v, mode %o", a.Ino == b.Ino, a.Mode)
	}
	must(t, unix.Stat(filepath.Join(dst, "d/closed"), &a))
	must(t, unix.Stat(filepath.Join(dst, "big"), &b))
	if a.Mode&0o777 != 0o555 || b.Mtim.Sec != 1000 || b.Size != 100_000 {
		t.Errorf("directory %o, time %d, size %d", a.Mode, b.Mtim.Sec, b.Size)
	}
	must(t, unix.Stat(filepath.Join(dst, "holes"), &a))
	if a.Size != 1<<30+3 || a.Blocks > 1000 {
		t.Errorf("holes: size %d, %d blocks", a.Size, a.Blocks)
	}
	must(t, unix.Lstat(filepath.Join(dst, "fifo"), &a))
	target, _ := os.Readlink(filepath.Join(dst, "d/link"))
	if got, _ := os.ReadFile(filepath.Join(dst, "bytes\xff\nline")); string(got) != "x" || a.Mode&unix.S_IFMT != unix.S_IFIFO || target != "../anywhere" {
		t.Errorf("%q %o %q", got, a.Mode, target)
	}
	// Again over itself: the same.
	if n, err := c.tarIn(dst, self(), stream); err != nil || n != 10 {
		t.Errorf("second time: %d %v", n, err)
	}
	// A single file.
	stream, err = c.tarOut(at("big"))
	must(t, err)
	if h, err := stdtar.NewReader(bytes.NewReader(stream)).Next(); err != nil || h.Name != "big" || h.Size != 100_000 {
		t.Errorf("%+v %v", h, err)
	}
	_, err = c.tarOut(at("none"))
	wantError(t, err, "user", "not_found")
}

func TestTarInHostile(t *testing.T) {
	reg := func(name string) stdtar.Header { return stdtar.Header{Name: name, Typeflag: stdtar.TypeReg} }
	link := func(name, to string) stdtar.Header {
		return stdtar.Header{Name: name, Linkname: to, Typeflag: stdtar.TypeSymlink}
	}
	hard := func(name, to string) stdtar.Header {
		return stdtar.Header{Name: name, Linkname: to, Typeflag: stdtar.TypeLink}
	}
	for name, tc := range map[string]struct {
		entries []stdtar.Header
		reason  string
	}{
		"dots":                   {[]stdtar.Header{reg("../x")}, "invalid_argument"},
		"dots inside":            {[]stdtar.Header{reg("a/../../x")}, "invalid_argument"},
		"through a link":         {[]stdtar.Header{link("l", ".."), reg("l/x")}, "invalid_argument"},
		"through an absolute":    {[]stdtar.Header{link("l", "/"), reg("l/x")}, "invalid_argument"},
		"directory on a link":    {[]stdtar.Header{link("l", ".."), {Name: "l", Typeflag: stdtar.TypeDir}}, "invalid_argument"},
		"over a link":            {[]stdtar.Header{link("l", "../outside"), reg("l")}, ""},
		"absolute":               {[]stdtar.Header{reg("/x")}, ""},
		"hard link with dots":    {[]stdtar.Header{hard("h", "../outside")}, "invalid_argument"},
		"hard link absolute":     {[]stdtar.Header{hard("h", "/outside")}, "not_found"},
		"hard link through link": {[]stdtar.Header{link("l", ".."), hard("h", "l/outside")}, "invalid_argument"},
		"device":                 {[]stdtar.Header{{Name: "null", Typeflag: stdtar.TypeChar, Devmajor: 1, Devminor: 3}}, "invalid_argument"},
		"file on a directory":    {[]stdtar.Header{{Name: "d/", Typeflag: stdtar.TypeDir, Mode: 0o755}, reg("d")}, "invalid_argument"},
	} {
		t.Run(name, func(t *testing.T) {
			c, outer := start(t), t.TempDir()
			dir := filepath.Join(outer, "in")
			must(t, os.WriteFile(filepath.Join(outer, "outside"), []byte("safe"), 0o644))
			_, err := c.tarIn(dir, self(), archive(t, tc.entries...))
			if tc.reason == "" {
				must(t, err)
			} else {
				wantError(t, err, "user", tc.reason)
			}
			leftovers(t, outer, 2)
			var st unix.Stat_t
			must(t, unix.Stat(filepath.Join(outer, "outside"), &st))
			if got, _ := os.ReadFile(filepath.Join(outer, "outside")); string(got) != "safe" || st.Nlink != 1 {
				t.Errorf("outside: %q, %d links", got, st.Nlink)
			}
		})
	}
}

func TestTarInBroken(t *testing.T) {
	c, dir := start(t), t.TempDir()
	good := archive(t, stdtar.Header{Name: "f", Typeflag: stdtar.TypeReg})
	_, err := c.tarIn(dir, self(), good[:515])
	wantError(t, err, "user", "invalid_argument")
	leftovers(t, dir, 0)
	_, err = c.tarIn(dir, self(), []byte(strings.Repeat("not a tar ", 100)))
	wantError(t, err, "user", "invalid_argument")
	if n, err := c.tarIn(dir, self(), nil); n != 0 || err != nil {
		t.Errorf("an empty stream: %d %v", n, err)
	}
}

func TestTarInOwners(t *testing.T) {
	needRoot(t)
	c := start(t)
	dir, err := os.MkdirTemp("/tmp", "dsec-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o777))
	a := archive(t, stdtar.Header{Name: "f", Typeflag: stdtar.TypeReg, Uid: 77, Gid: 88})
	for user, want := range map[string][2]uint32{"root": {77, 88}, "1234": {1234, 1234}} {
		_, err := c.tarIn(filepath.Join(dir, user), user, a)
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(dir, user, "f"), &st))
		if st.Uid != want[0] || st.Gid != want[1] {
			t.Errorf("%s: %d:%d", user, st.Uid, st.Gid)
		}
	}
	_, err = c.tarIn("/root/dsec-test-none", "1234", a)
	wantError(t, err, "user", "forbidden")
}

// TestTarInStaysInside unpacks archives made to get out: nothing beside the target appears or changes.
func TestTarInStaysInside(t *testing.T) {
	w := New()
	defer w.Close()
	o := &op{w: w, who: w.threads.base}
	base := t.TempDir()
	name := rapid.Custom(func(rt *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "l", "..", ".", ""}), 1, 4).Draw(rt, "parts"), "/")
	})
	rapid.Check(t, func(rt *rapid.T) {
		outer, err := os.MkdirTemp(base, "")
		must(t, err)
		defer os.RemoveAll(outer)
		outside := filepath.Join(outer, "outside")
		must(t, os.WriteFile(outside, []byte("safe"), 0o640))
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		for range rapid.IntRange(1, 6).Draw(rt, "entries") {
			h := tar.Header{Name: name.Draw(rt, "name"), Mode: 0o777, Type: rapid.SampledFrom([]tar.Type{
				tar.TypeFile, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar}).Draw(rt, "type")}
			switch h.Type {
			case tar.TypeSymlink, tar.TypeLink:
				h.Linkname = rapid.OneOf(name, rapid.SampledFrom([]string{outer, outside, "../outside", "l/outside"})).Draw(rt, "to")
			case tar.TypeFile:
				h.Size = 1
			}
			must(t, tw.WriteHeader(&h))
			if h.Size > 0 {
				tw.Write([]byte("x"))
			}
		}
		must(t, tw.Close())
		_, _ = o.unpack(&buf, filepath.Join(outer, "in"))
		list, _ := os.ReadDir(outer)
		var st unix.Stat_t
		must(t, unix.Lstat(outside, &st))
		if got, _ := os.ReadFile(outside); len(list) != 2 || string(got) != "safe" || st.Nlink != 1 || st.Mode&0o7777 != 0o640 {
			rt.Fatalf("beside the target: %v, %q, %d links, mode %o", list, got, st.Nlink, st.Mode)
		}
	})
}

// FuzzTarIn unpacks anything; whatever it is, nothing appears beside the target.
func FuzzTarIn(f *testing.F) {
	var buf bytes.Buffer
	w := stdtar.NewWriter(&buf)
	w.WriteHeader(&stdtar.Header{Name: "a/b", Typeflag: stdtar.TypeReg, Size: 1, Mode: 0o644})
	w.Write([]byte("x"))
	w.Close()
	f.Add(buf.Bytes())
	worker, outer := New(), f.TempDir()
	o := &op{w: worker, who: worker.threads.base}
	f.Fuzz(func(t *testing.T, stream []byte) {
		dir := filepath.Join(outer, "in")
		_, _ = o.unpack(bytes.NewReader(stream), dir)
		leftovers(t, outer, 1)
		os.RemoveAll(dir)
	})
}
