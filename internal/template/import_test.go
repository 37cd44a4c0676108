package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// rootfs is a small root file system as a tar.
func rootfs(t testing.TB, extra ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, data string) {
		h.Size = int64(len(data))
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, data)
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "etc/"}, "")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, "root:x:0:0:root:/root:/bin/sh\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, "root:x:0:\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/shadow", Mode: 0o640}, "root:*:1:0:99999:7:::\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/resolv.conf", Mode: 0o644}, "nameserver 192.0.2.1\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/bash"}, "#!shell")
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr/bin"}, "")
	for _, h := range extra {
		add(h, "")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// image makes an OCI image of layers, bottom first.
func image(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	img := v1.Image(empty.Image)
	for _, b := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", goruntime.GOARCH
	cfg.Config = v1.Config{Env: []string{"PATH=/opt/bin", "HOME=/x", "A=1"}, WorkingDir: "/srv", User: "app:grp"}
	img, err = mutate.ConfigFile(img, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// A layer that removes and replaces, as images do.
func upperTar(t testing.TB) []byte {
	return tarOf(t, "etc/.wh.shadow", "", "opt/app", "new", "usr/bin/bash", "#!other")
}

func tarOf(t testing.TB, pairs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: pairs[i], Size: int64(len(pairs[i+1])), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, pairs[i+1])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: owners and whiteouts")
	}
}

// One image by every way in gives one template.
func TestImageImports(t *testing.T) {
	needRoot(t)
	img := image(t, rootfs(t), upperTar(t))
	dir := t.TempDir()
	srv := httptest.NewServer(registry.New())
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	ref, err := name.ParseReference(host + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	lay, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := lay.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, "docker.tar"), tag, img); err != nil {
		t.Fatal(err)
	}
	docker, err := os.ReadFile(filepath.Join(dir, "docker.tar"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "docker.tar.gz"), gzipped(t, docker))
	write(t, filepath.Join(dir, "oci.tar"), tarDir(t, filepath.Join(dir, "layout")))

	var first *Template
	for _, arg := range []string{host + "/team/app:1", "oci:" + host + "/team/app:1", filepath.Join(dir, "layout"),
		filepath.Join(dir, "docker.tar"), filepath.Join(dir, "docker.tar.gz"), filepath.Join(dir, "oci.tar")} {
		src, err := ParseSource(arg)
		if err != nil {
			t.Fatal(arg, err)
		}
		s := open(t, t.TempDir(), Options{})
		var stages []string
		tpl, err := s.Import(t.Context(), ImportRequest{Name: "app", Source: src, Progress: func(p Progress) { stages = append(stages, p.Stage) }})
		if err != nil {
			t.Fatal(arg, err)
		}
		if len(tpl.Layers) != 3 || tpl.Cwd != "/srv" || tpl.User != "app" || !slices.Equal(tpl.Env, []string{"PATH=/opt/bin", "A=1"}) || !tpl.Newest {
			t.Errorf("%s gives %+v", arg, tpl)
		}
		if !slices.Contains(stages, "layer 2/2") {
			t.Errorf("progress %v", stages)
		}
		if first == nil {
			first = tpl
		}
		if tpl.Digest != first.Digest {
			t.Errorf("%s gives digest %s, not %s", arg, tpl.Digest, first.Digest)
		}
		if err := s.Verify(t.Context(), "app"); err != nil {
			t.Error(err)
		}
		checkTree(t, s, tpl)
	}
	_, err = open(t, t.TempDir(), Options{}).Import(t.Context(), ImportRequest{Name: "app", Source: Source{Kind: Registry, Ref: host + "/team/none:1"}})
	if !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("unknown image: %v", err)
	}
}

// checkTree looks at what a box would see.
func checkTree(t *testing.T, s *Local, tpl *Template) {
	t.Helper()
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
	defer v.Close()
	for file, want := range map[string]string{
		"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n",
		"etc/group":       "root:x:0:\nuser:x:1000:\n",
		"etc/resolv.conf": resolvFile,
		"bin/bash":        "#!other",
		"opt/app":         "new",
	} {
		got, _, err := v.ReadFile(file, 1000)
		if err != nil || string(got) != want {
			t.Errorf("%s = %q, %v", file, got, err)
		}
	}
	if _, err := v.Stat("etc/shadow"); err == nil {
		t.Error("a file that the image removed is there")
	}
	for _, m := range mountPoints {
		a, err := v.Lstat(m.path)
		if err != nil || !a.IsDir() {
			t.Errorf("mount point %s: %v", m.path, err)
		}
		if m.user && a.UID != 1000 {
			t.Errorf("%s belongs to %d", m.path, a.UID)
		}
	}
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func tarDir(t testing.TB, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRootfsImports(t *testing.T) {
	dir := t.TempDir()
	plain := rootfs(t)
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	write(t, filepath.Join(dir, "a.tar"), plain)
	write(t, filepath.Join(dir, "a.tar.gz"), gzipped(t, plain))
	write(t, filepath.Join(dir, "a.tar.zst"), z.EncodeAll(plain, nil))
	write(t, filepath.Join(dir, "a.tar.xz"), []byte("\xfd7zXZ\x00\x00\x04"))
	s := open(t, t.TempDir(), Options{})
	var versions []string
	for _, file := range []string{"a.tar", "a.tar.gz", "a.tar.zst"} {
		src, err := ParseSource(filepath.Join(dir, file))
		if err != nil || src.Kind != Tar {
			t.Fatalf("%+v, %v", src, err)
		}
		tpl, err := s.Import(t.Context(), ImportRequest{Name: "r", Source: src})
		if err != nil {
			t.Fatal(file, err)
		}
		versions = append(versions, tpl.Version)
	}
	if len(slices.Compact(versions)) != 1 {
		t.Errorf("versions %v", versions)
	}
	if _, err := s.Import(t.Context(), ImportRequest{Name: "r", Source: Source{Kind: Tar, Ref: filepath.Join(dir, "a.tar.xz")}}); err == nil || !strings.Contains(err.Error(), "xz -d") {
		t.Errorf("xz: %v", err)
	}
	_, root, release, err := s.Resolve(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	release()
	// The same as a directory, from the stored tree.
	if base := root.Layers[len(root.Layers)-1]; !base.EROFS {
		tpl, err := s.Import(t.Context(), ImportRequest{Name: "d", Source: Source{Kind: Dir, Ref: base.Path}})
		if err != nil || tpl.Version != versions[0] {
			t.Errorf("directory: %v, %v", tpl, err)
		}
	}
	if all, err := s.List(t.Context()); err != nil || len(all) == 0 || all[0].Ref() == "" {
		t.Errorf("list: %v, %v", all, err)
	}
}

func TestWrongContentIsRefused(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	img := image(t, rootfs(t))
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.RootFS.DiffIDs[0].Hex = strings.Repeat("0", 64)
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	lay, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := lay.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	_, err = s.Import(t.Context(), ImportRequest{Name: "bad", Source: Source{Kind: Layout, Ref: dir}})
	if e := errdefs.From(err); err == nil || e.Class != errdefs.User {
		t.Errorf("err = %v", err)
	}
	nothingLeft(t, s)
}

// nothingLeft checks that neither templates nor layers nor half-made files exist.
func nothingLeft(t *testing.T, s *Local) {
	t.Helper()
	if all, err := s.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("templates left: %v, %v", all, err)
	}
	if all, err := s.Layers().List(); err != nil || len(all) > 0 {
		t.Errorf("layers left: %v, %v", all, err)
	}
	for _, dir := range []string{"../layers/tmp", "../layers/keys"} {
		if left, err := os.ReadDir(filepath.Join(s.dir, dir)); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for _, req := range []ImportRequest{
		{Name: "", Source: Source{Kind: Dir, Ref: "/nonexistent"}},
		{Name: "../x", Source: Source{Kind: Dir, Ref: "/nonexistent"}},
		{Name: "a..b", Source: Source{Kind: Dir, Ref: "/nonexistent"}},
		{Name: "x", Source: Source{Kind: Dir, Ref: "/nonexistent"}},
		{Name: "x", Source: Source{Kind: Tar, Ref: "/nonexistent"}},
		{Name: "x", Source: Source{Kind: "what", Ref: "x"}},
		{Name: "x", Source: Source{Kind: Registry, Ref: "UPPER CASE"}},
		{Name: "x", Source: Source{Kind: Debian, Ref: "--evil"}},
		{Name: "x", Source: Source{Kind: Debian, Ref: "bookworm", Packages: []string{"--hook=x"}}},
		{Name: "x", Source: Source{Kind: Dir, Ref: t.TempDir()}, Init: []string{"true"}},
		{Name: "x", Source: Source{Kind: Dir, Ref: t.TempDir()}, Env: []string{"noequals"}},
	} {
		_, err := s.Import(t.Context(), req)
		if e := errdefs.From(err); err == nil || e.Class != errdefs.User || e.Remedy == "" {
			t.Errorf("%+v: %v", req, err)
		}
	}
	nothingLeft(t, s)
}
