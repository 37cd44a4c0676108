package template

import (
	"archive/tar"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/dsec-platform/dsec/internal/layer"
)

func TestSudo(t *testing.T) {
	sudo := []tar.Header{{Typeflag: tar.TypeReg, Name: "usr/bin/sudo", Mode: 0o4755}, {Typeflag: tar.TypeDir, Name: "etc/sudoers.d/", Mode: 0o750}}
	own := append(sudo[:2:2], tar.Header{Typeflag: tar.TypeReg, Name: sudoers, Mode: 0o440})
	for name, c := range map[string]struct {
		extra []tar.Header
		want  string
	}{
		"the user may":         {sudo, "user ALL=(ALL:ALL) NOPASSWD: ALL\n"},
		"the image's own rule": {own, ""},
	} {
		a, rule := sudoRule(t, c.extra...)
		if rule != c.want || a.UID != 0 || a.Mode&0o7777 != 0o440 {
			t.Errorf("%s: %q, %+v", name, rule, a)
		}
	}
	for name, extra := range map[string][]tar.Header{"no sudo": nil, "sudo without rules": sudo[:1]} {
		v := imported(t, extra...)
		if _, err := v.Lstat(sudoers); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func sudoRule(t *testing.T, extra ...tar.Header) (layer.Attr, string) {
	t.Helper()
	b, a, err := imported(t, extra...).ReadFile(sudoers, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return a, string(b)
}

// imported is what a box would see of a root file system.
func imported(t *testing.T, extra ...tar.Header) *layer.View {
	t.Helper()
	file := filepath.Join(t.TempDir(), "root.tar")
	write(t, file, rootfs(t, extra...))
	s := open(t, t.TempDir(), Options{})
	tpl, err := s.Import(t.Context(), ImportRequest{Name: "sudo", Source: Source{Kind: Tar, Ref: file}})
	if err != nil {
		t.Fatal(err)
	}
	var infos []layer.Info
	for _, l := range tpl.Layers {
		in, err := s.Layers().Get(l.Digest)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, in)
	}
	v, err := layer.OpenView(infos)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}
