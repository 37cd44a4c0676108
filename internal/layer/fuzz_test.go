package layer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzArchive feeds broken and hostile archives: whatever happens, nothing
// appears outside the layer, nothing half-made is left, and what was taken
// verifies and imports again to the same digest.
func FuzzArchive(f *testing.F) {
	f.Add(archive(f, sample(f)...))
	f.Add(archive(f, symlink("a", "/etc"), reg("a/b", "x"), link("c", "a/passwd")))
	f.Add(archive(f, reg("d/.wh..wh..opq", ""), reg(".wh.x", ""), dir("x"), reg("x/y", "z")))
	base := f.TempDir()
	s, err := Open(filepath.Join(base, "store"), Options{Format: Dir, Limits: Limits{Bytes: 1 << 20, Entries: 100}})
	if err != nil {
		f.Fatal(err)
	}
	whiteouts := os.Geteuid() == 0
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := writeTar(s, WriteOptions{Whiteouts: whiteouts, NoSync: true}, b)
		if outside, _ := filepath.Glob(filepath.Join(base, "*")); len(outside) != 1 {
			t.Fatalf("outside: %v", outside)
		}
		if left, _ := filepath.Glob(filepath.Join(s.dir, "tmp", "*")); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
		if err != nil {
			return
		}
		if err := s.Verify(t.Context(), in.Digest); err != nil {
			t.Fatal(err)
		}
		again, err := s.Write(t.Context(), WriteOptions{Overlay: true, NoSync: true}, func(w *Writer) error { return w.AddDir(in.Path) })
		if err != nil || again.Digest != in.Digest {
			t.Fatalf("copy: %s, %v", again.Digest, err)
		}
		if err := s.Remove(in.Digest); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecompress(f *testing.F) {
	f.Add([]byte{0x1f, 0x8b, 8})
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd})
	f.Add([]byte("BZh9"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decompress(bytes.NewReader(b))
		if err != nil {
			return
		}
		defer r.Close()
		buf := make([]byte, 4096)
		for range 100 {
			if _, err := r.Read(buf); err != nil {
				return
			}
		}
	})
}
