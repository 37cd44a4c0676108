package template

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
	"github.com/dsec-platform/dsec/internal/runtime"
)

func open(t *testing.T, dir string, o Options) *Local {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fakeHost is a host that is not merged into /usr.
func fakeHost(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range []string{"usr/bin", "usr/local/bin", "bin", "lib", "etc/ssl/certs", "etc/ssl/private", "etc/ld.so.conf.d", "home/alice", "opt"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"etc/ld.so.cache": 0o644, "etc/ssl/certs/ca.crt": 0o644, "etc/ssl/certs/host.key": 0o644,
		"etc/services": 0o600, "etc/passwd": 0o644, "etc/shadow": 0o640, "etc/ld.so.conf.d/a.conf": 0o644, "home/alice/secret": 0o644} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("host "+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/sbin", filepath.Join(root, "sbin")); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestBaseFollowsTheHost(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	host := fakeHost(t)
	_, first, err := s.ensureBase(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	_, root, release, err := s.Resolve(t.Context(), "base")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, b := range root.HostBinds {
		targets = append(targets, b.Target)
	}
	if !slices.Equal(targets, []string{"/usr", "/bin", "/lib"}) || !slices.Equal(root.HostBinds[0].Masked, []string{"local"}) {
		t.Errorf("binds %+v", root.HostBinds)
	}
	dir := root.Layers[0].Path
	if target, err := os.Readlink(filepath.Join(dir, "sbin")); target != "usr/sbin" {
		t.Errorf("sbin: %q, %v", target, err)
	}
	for name, want := range map[string]bool{"etc/ld.so.cache": true, "etc/ssl/certs/ca.crt": true, "etc/ld.so.conf.d/a.conf": true,
		"etc/ssl/certs/host.key": false, "etc/ssl/private": false, "etc/services": false, "home/alice": false, "opt": false} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "etc/passwd")); err != nil || strings.Contains(string(b), "host") {
		t.Errorf("passwd %q, %v", b, err)
	}
	if made, _, err := s.ensureBase(t.Context(), host); err != nil || made {
		t.Errorf("made again without a change: %v", err)
	}
	release()
	// The host's loader cache changes. A box that outlived its daemon may stand on the
	// old version: it stays until the next boot.
	if err := os.WriteFile(filepath.Join(host, "etc/ld.so.cache"), []byte("upgraded"), 0o644); err != nil {
		t.Fatal(err)
	}
	made, second, err := s.ensureBase(t.Context(), host)
	if err != nil || !made || second.Version == first.Version {
		t.Fatalf("after a change: %v, %v", made, err)
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("%d versions, %v", len(all), err)
	}
	m, err := s.find(first.Ref())
	if err != nil {
		t.Fatal(err)
	}
	m.Boot = "an earlier one"
	if err := jsonfile.Write(s.manifestPath(m.Name, m.Version), m, false); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(host, "etc/ld.so.cache"), []byte("upgraded again"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ensureBase(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), first.Ref()); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("a view of an earlier boot is left: %v", err)
	}
	if _, err := s.Get(t.Context(), second.Ref()); err != nil {
		t.Error(err)
	}
}

func TestImportedBaseIsLeftAlone(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	imported, err := s.Import(t.Context(), ImportRequest{Name: BaseName, Source: tarFile(t, rootfs(t))})
	if err != nil {
		t.Fatal(err)
	}
	made, tpl, err := s.EnsureBase(t.Context())
	if err != nil || made || tpl.Version != imported.Version || tpl.HostView {
		t.Errorf("made %v, %+v, %v", made, tpl, err)
	}
}

func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := s.EnsureBase(b.Context()); err != nil {
			b.Fatal(err)
		}
		_, _, release, err := s.Resolve(b.Context(), "")
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

func BenchmarkResolve(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := s.EnsureBase(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, _, release, err := s.Resolve(b.Context(), "")
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

func TestBaseShowsTheHostsProgramsOnly(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	start := time.Now()
	made, tpl, err := s.EnsureBase(t.Context())
	if err != nil || !made {
		t.Fatalf("EnsureBase = %v, %v", made, err)
	}
	t.Logf("first: %v", time.Since(start))
	if !tpl.HostView || len(tpl.Layers) != 1 || tpl.Layers[0].Format != "dir" {
		t.Fatalf("not a host view: %+v", tpl)
	}
	start = time.Now()
	made, again, err := s.EnsureBase(t.Context())
	if err != nil || made || again.Version != tpl.Version {
		t.Fatalf("second EnsureBase = %v, %v", made, err)
	}
	t.Logf("second: %v", time.Since(start))

	_, root, release, err := s.Resolve(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if !slices.ContainsFunc(root.HostBinds, func(b runtime.HostBind) bool { return b.Target == "/usr" }) {
		t.Error("/usr is not shown")
	}
	dir := root.Layers[0].Path
	passwd, err := os.ReadFile(filepath.Join(dir, "etc/passwd"))
	if err != nil || !strings.Contains(string(passwd), "user:x:1000:1000:") {
		t.Errorf("passwd = %q, %v", passwd, err)
	}
	for _, secret := range []string{"etc/ssh", "etc/pip.conf", "etc/npmrc", "etc/machine-id", "etc/ssl/private", "etc/sudoers", "root/.ssh"} {
		if _, err := os.Lstat(filepath.Join(dir, secret)); err == nil {
			t.Errorf("%s of the host is shown", secret)
		}
	}
	for _, point := range []string{"proc", "dev", "sys", "tmp", "run", "workspace", "home/user", "usr"} {
		if st, err := os.Stat(filepath.Join(dir, point)); err != nil || !st.IsDir() {
			t.Errorf("no directory %s", point)
		}
	}
}
