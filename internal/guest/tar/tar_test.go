package tar

import (
	stdtar "archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type entry struct {
	h       Header
	content []byte
}

func write(t testing.TB, entries []entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf)
	for i := range entries {
		if err := w.WriteHeader(&entries[i].h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(entries[i].content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func entries(rt *rapid.T) []entry {
	name := rapid.Custom(func(rt *rapid.T) string {
		part := rapid.StringMatching(`[a-z \n\x{e9}]{1,60}`)
		s := strings.Join(rapid.SliceOfN(part, 1, 8).Draw(rt, "parts"), "/")
		if rapid.Bool().Draw(rt, "bytes") {
			s += "\xff\xfe"
		}
		return s
	})
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) entry {
		h := Header{
			Name: name.Draw(rt, "name"), Type: rapid.SampledFrom([]Type{TypeFile, TypeDir, TypeSymlink, TypeLink, TypeFifo}).Draw(rt, "type"),
			Mode: rapid.Uint32Max(0o7777).Draw(rt, "mode"), UID: rapid.SampledFrom([]uint32{0, 1000, 65534, 3 << 20}).Draw(rt, "uid"),
			GID: rapid.Uint32Max(1<<31).Draw(rt, "gid"), ModUnix: rapid.Int64Range(-1000, 1<<36).Draw(rt, "mtime"),
		}
		var content []byte
		switch h.Type {
		case TypeSymlink, TypeLink:
			h.Linkname = name.Draw(rt, "link")
		case TypeFile:
			content = rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(rt, "content")
			h.Size = int64(len(content))
		}
		return entry{h, content}
	}), 0, 5).Draw(rt, "entries")
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := entries(rt)
		stream := write(t, want)
		r, std := NewReader(bytes.NewReader(stream)), stdtar.NewReader(bytes.NewReader(stream))
		for _, e := range want {
			h, err := r.Next()
			if err != nil {
				rt.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, e.content) {
				rt.Fatalf("content of %q differs: %v", e.h.Name, err)
			}
			if h.Data != nil || h.Name != e.h.Name || h.Linkname != e.h.Linkname || h.Type != e.h.Type || h.Mode != e.h.Mode ||
				h.UID != e.h.UID || h.GID != e.h.GID || h.Size != e.h.Size || h.ModUnix != e.h.ModUnix {
				rt.Fatalf("got %+v, want %+v", h, e.h)
			}
			sh, err := std.Next()
			if err != nil {
				rt.Fatalf("archive/tar: %v", err)
			}
			got, err = io.ReadAll(std)
			if err != nil || !bytes.Equal(got, e.content) || sh.Name != e.h.Name || sh.Linkname != e.h.Linkname ||
				sh.Typeflag != byte(e.h.Type) || sh.Uid != int(e.h.UID) || sh.Gid != int(e.h.GID) || sh.ModTime.Unix() != e.h.ModUnix || uint32(sh.Mode) != e.h.Mode {
				rt.Fatalf("archive/tar reads %+v, want %+v, %v", sh, e.h, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			rt.Fatalf("at the end: %v", err)
		}
	})
}

func TestReadsArchiveTar(t *testing.T) {
	long := strings.Repeat("d/", 120) + "n"
	for _, format := range []stdtar.Format{stdtar.FormatUSTAR, stdtar.FormatPAX, stdtar.FormatGNU} {
		var buf bytes.Buffer
		w := stdtar.NewWriter(&buf)
		h := &stdtar.Header{Name: "short", Typeflag: stdtar.TypeReg, Size: 5, Mode: 0o4755, Uid: 7, Gid: 8, ModTime: time.Unix(99, 0), Format: format}
		if format != stdtar.FormatUSTAR {
			h.Name, h.Uid = long, 5<<20
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte("hello"))
		w.WriteHeader(&stdtar.Header{Name: "d/", Typeflag: stdtar.TypeDir, Mode: 0o700, Format: format})
		w.Close()
		r := NewReader(&buf)
		got, err := r.Next()
		if err != nil {
			t.Fatalf("%v: %v", format, err)
		}
		content, err := io.ReadAll(r)
		if err != nil || string(content) != "hello" || got.Name != h.Name || got.UID != uint32(h.Uid) || got.Mode != 0o4755 || got.ModUnix != 99 {
			t.Errorf("%v: %+v %q %v", format, got, content, err)
		}
		if got, err = r.Next(); err != nil || got.Name != "d/" || got.Type != TypeDir {
			t.Errorf("%v: %+v %v", format, got, err)
		}
	}
}

func TestSparse(t *testing.T) {
	h := Header{Name: "dir/holes", Type: TypeFile, Mode: 0o644, Size: 1 << 40, Data: []Extent{{4096, 3}, {1 << 39, 2}, {1 << 40, 0}}}
	stream := write(t, []entry{{h, []byte("abcde")}})
	if len(stream) > 8192 {
		t.Errorf("a sparse file takes %d bytes", len(stream))
	}
	r := NewReader(bytes.NewReader(stream))
	got, err := r.Next()
	if err != nil || got.Name != h.Name || got.Size != h.Size || len(got.Data) != 3 || got.Data[1] != h.Data[1] {
		t.Fatalf("%+v %v", got, err)
	}
	if content, err := io.ReadAll(r); err != nil || string(content) != "abcde" {
		t.Errorf("%q %v", content, err)
	}
	sh, err := stdtar.NewReader(bytes.NewReader(stream)).Next()
	if err != nil || sh.Name != h.Name || sh.Size != h.Size {
		t.Errorf("archive/tar: %+v %v", sh, err)
	}
}

func TestGNUTar(t *testing.T) {
	gnu, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("tar is not installed")
	}
	dir := t.TempDir()
	name := strings.Repeat("x", 200)
	os.WriteFile(filepath.Join(dir, name), []byte("long"), 0o600)
	os.Symlink(strings.Repeat("y", 300), filepath.Join(dir, "link"))
	f, _ := os.Create(filepath.Join(dir, "holes"))
	f.WriteAt([]byte("end"), 10<<20)
	f.Close()
	for _, format := range []string{"gnu", "posix", "ustar"} {
		args := []string{"-C", dir, "--format", format, "-cf", "-", "."}
		if format == "posix" {
			args = append([]string{"-S"}, args...)
		}
		if format == "ustar" {
			args = append(args[:len(args)-1], "holes")
		}
		out, err := exec.Command(gnu, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]*Header{}
		r := NewReader(bytes.NewReader(out))
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			seen[strings.TrimPrefix(h.Name, "./")] = h
		}
		if h := seen["holes"]; h == nil || h.Size != 10<<20+3 || (format == "posix" && (h.Data == nil || len(out) > 1<<20)) {
			t.Errorf("%s: holes: %+v", format, h)
		}
		if format != "ustar" && (seen[name] == nil || seen["link"] == nil || len(seen["link"].Linkname) != 300) {
			t.Errorf("%s: entries are missing", format)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(write(f, []entry{{Header{Name: strings.Repeat("n", 300), Type: TypeFile, Size: 3}, []byte("abc")}}))
	f.Add(write(f, []entry{{Header{Name: "s", Type: TypeFile, Size: 1 << 30, Data: []Extent{{5, 1}}}, []byte("z")}}))
	f.Add(write(f, []entry{{Header{Name: "l", Type: TypeSymlink, Linkname: "../../etc"}, nil}}))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		for {
			h, err := r.Next()
			if err != nil {
				return
			}
			if h.Name == "" || len(h.Name) > maxName || h.Size < 0 || h.Stored() < 0 || (h.Type == TypeFile && h.Stored() > h.Size) {
				t.Fatalf("%+v", h)
			}
			n, err := io.Copy(io.Discard, r)
			if err == nil && h.Type == TypeFile && n != h.Stored() {
				t.Fatalf("%d bytes of content, header %+v", n, h)
			}
		}
	})
}
