package template

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
