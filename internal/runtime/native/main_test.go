package native

import (
	"os"
	"path/filepath"
	"testing"
)

// cannotRun says why boxes cannot be made by this test process; "" if they can.
func cannotRun() string {
	if os.Geteuid() != 0 {
		return "making boxes needs root"
	}
	for _, name := range []string{"dsec-guest", "dsec-spawner"} {
		if _, err := embedded.ReadFile("embedded/" + name + ".bin"); err != nil {
			return name + " is not embedded: run scripts/build-embedded.sh first"
		}
	}
	return ""
}

// tinyLayer is a layer with mount points and users, and no program.
func tinyLayer(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"proc", "dev", "sys", "tmp", "run", "workspace", "home/user", "etc", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	passwd := "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
