package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What goes to the server: everything but what .dockerignore names and does not let through again.
func TestPackDir(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		".dockerignore": "# no secrets\n**/.env\nout\n!out/keep\n*.log\n",
		"a.py":          "a", ".env": "x", "sub/.env": "x", "sub/b.py": "bb", "out/drop": "x", "out/keep": "k", "run.log": "x",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.py", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	keep, err := notIgnored(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := packDir(&b, dir, keep); err != nil {
		t.Fatal(err)
	}
	var got []string
	for tr := tar.NewReader(&b); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			text, _ := io.ReadAll(tr)
			got = append(got, h.Name+"="+string(text[:min(2, len(text))]))
		case tar.TypeSymlink:
			got = append(got, h.Name+">"+h.Linkname)
		}
	}
	if s := strings.Join(got, " "); s != ".dockerignore=#  a.py=a link>a.py out/keep=k sub/b.py=bb" {
		t.Error(s)
	}
}
