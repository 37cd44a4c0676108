package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A binary is current as long as nothing that it is made of is newer; what tests are made of does not matter.
func TestCurrent(t *testing.T) {
	root := t.TempDir()
	write := func(name string, at time.Time) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	built := time.Now().Add(-time.Hour)
	before, after := built.Add(-time.Minute), built.Add(time.Minute)
	for _, name := range []string{"go.mod", "cmd/dsec/main.go", "internal/a/a.go", "gen/g.go", "sdk/go/c.go"} {
		write(name, before)
	}
	for _, name := range []string{"internal/a/a_test.go", "internal/a/testdata/x.go", "internal/a/embedded/guest.bin", "docs/api.md", "test/e2e/x_test.go"} {
		write(name, after)
	}
	binary := filepath.Join(root, "bin/dsec")
	t.Chdir(filepath.Join(root, "test/e2e"))
	t.Setenv("DSEC_TEST_BINARY", "")
	if err := Current(binary); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("one that is not there: %v", err)
	}
	write("bin/dsec", built)
	if err := Current(binary); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"internal/a/a.go", "go.mod", "sdk/go/c.go"} {
		write(name, after)
		if err := Current(binary); err == nil || !strings.Contains(err.Error(), "older than "+name+": run make build") {
			t.Errorf("%s: %v", name, err)
		}
		write(name, before)
	}
	write("cmd/dsec/main.go", after)
	t.Setenv("DSEC_TEST_BINARY", binary)
	if err := Current(binary); err != nil {
		t.Errorf("one that was named: %v", err)
	}
}
