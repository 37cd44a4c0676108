package integrations

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// python gives the interpreter of a virtual environment with the pinned packages of
// requirements.txt, which is made once and kept in .cache.
func python(t *testing.T) string {
	t.Helper()
	path, err := venv()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var venv = sync.OnceValues(func() (string, error) {
	want, err := os.ReadFile("requirements.txt")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(want)
	mark := hex.EncodeToString(sum[:])
	dir := filepath.Join(repo(), ".cache", "integrations")
	bin := filepath.Join(dir, "bin", "python")
	if have, err := os.ReadFile(filepath.Join(dir, "installed")); err == nil && string(have) == mark {
		return bin, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", dir},
		{bin, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps", "-r", "requirements.txt"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return "", err
		}
	}
	return bin, os.WriteFile(filepath.Join(dir, "installed"), []byte(mark), 0o644)
})

func TestMCPWithThePythonClient(t *testing.T) {
	cmd := exec.Command(python(t), "testdata/mcp_client.py", binary(), server.URL(), server.key)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
