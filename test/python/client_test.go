package python

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// environment is a Python with the pinned packages and the client's wheel.
type environment struct {
	python, wheel string
}

// prepared makes the environment below .cache. Packages are installed when requirements.txt has
// changed; the wheel is built and installed anew each time, as a user would get it.
var prepared = sync.OnceValues(func() (environment, error) {
	dir := filepath.Join(repo(), ".cache", "python")
	env := environment{python: filepath.Join(dir, "venv", "bin", "python")}
	want, err := os.ReadFile("requirements.txt")
	if err != nil {
		return env, err
	}
	sum := sha256.Sum256(want)
	digest := hex.EncodeToString(sum[:])
	mark := filepath.Join(dir, "installed")
	if have, err := os.ReadFile(mark); err != nil || string(have) != digest {
		if err := os.RemoveAll(dir); err != nil {
			return env, err
		}
		if err := command("", "python3", "-m", "venv", filepath.Join(dir, "venv")); err != nil {
			return env, err
		}
		if err := pip(env, "--no-deps", "-r", "requirements.txt"); err != nil {
			return env, err
		}
		if err := os.WriteFile(mark, []byte(digest), 0o644); err != nil {
			return env, err
		}
	}
	dist := filepath.Join(dir, "dist")
	if err := os.RemoveAll(dist); err != nil {
		return env, err
	}
	if err := command(sdk(), env.python, "-m", "hatchling", "build", "-t", "wheel", "-d", dist); err != nil {
		return env, err
	}
	wheels, err := filepath.Glob(filepath.Join(dist, "dsec-*.whl"))
	if err != nil || len(wheels) != 1 {
		return env, fmt.Errorf("the build made the wheels %v (%v)", wheels, err)
	}
	env.wheel = wheels[0]
	return env, pip(env, "--no-deps", "--force-reinstall", env.wheel)
})

func sdk() string { return filepath.Join(repo(), "sdk", "python") }

func pip(e environment, args ...string) error {
	return command("", e.python, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, args...)...)
}

func command(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}

func prepare(t *testing.T) environment {
	t.Helper()
	e, err := prepared()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// environ is what a program needs to find the server, and nothing that leads it to the sources.
func environ() []string {
	return append(os.Environ(), "DSEC_URL="+server.URL(), "DSEC_API_KEY="+server.key, "DSEC_DATA_DIR=", "DSEC_BINARY="+binary(),
		"PYTHONPATH=", "PYTHONDONTWRITEBYTECODE=1")
}

// TestClient runs the client's own tests with the installed wheel, a file at a time.
func TestClient(t *testing.T) {
	e := prepare(t)
	files, err := filepath.Glob(filepath.Join(sdk(), "tests", "test_*.py"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".py"), func(t *testing.T) {
			cmd := exec.Command(e.python, "-m", "pytest", filepath.Join("tests", name))
			cmd.Dir, cmd.Env = sdk(), environ()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestTypes holds the client to its promise to be typed.
func TestTypes(t *testing.T) {
	e := prepare(t)
	if err := command(sdk(), e.python, "-m", "mypy"); err != nil {
		t.Error(err)
	}
}

// TestNewUser counts: from the wheel to a first result in ten lines, the program included.
func TestNewUser(t *testing.T) {
	e := prepare(t)
	lines := 0
	for _, file := range []string{"first.sh", "first.py"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines++
			}
		}
	}
	if lines > 10 {
		t.Errorf("it takes %d lines", lines)
	}
	script, err := filepath.Abs("testdata/first.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-e", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(environ(), "WHEEL="+e.wheel, "HERE="+filepath.Dir(script))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "hello from user") {
		t.Errorf("%v\n%s", err, out)
	}
}
