package native

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/guest/sleeper"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// TestMain fails the package if anything of its boxes is left: cgroups, mounts,
// loop devices, processes.
func TestMain(m *testing.M) {
	if setup := os.Getenv(crashEnv); setup != "" {
		fmt.Fprintln(os.Stderr, crashDaemon(setup))
		os.Exit(1)
	}
	before := leftovers()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	for what := range leftovers() {
		if !before[what] {
			fmt.Fprintln(os.Stderr, "left behind:", what)
			code = 1
		}
	}
	os.Exit(code)
}

// leftovers lists what the runtimes of this package's tests made. Their data
// directories are below the temporary directory.
func leftovers() map[string]bool {
	found := map[string]bool{}
	for dir := range testDirs {
		for _, place := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			groups, _ := filepath.Glob(place + rootName(dir) + "*")
			for _, g := range groups {
				found["cgroup "+g] = true
			}
		}
		for _, f := range []string{"/proc/self/mounts", "/proc/self/mountinfo"} {
			raw, _ := os.ReadFile(f)
			if strings.Contains(string(raw), dir) {
				found["mount below "+dir] = true
			}
		}
		loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, l := range loops {
			if raw, _ := os.ReadFile(l); strings.HasPrefix(string(raw), dir) {
				found["loop device "+l] = true
			}
		}
		procs, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range procs {
			pid, _ := strconv.Atoi(filepath.Base(p))
			if path, _ := sleeper.Program(pid); strings.HasPrefix(path, dir) {
				found["process "+p+" "+path] = true
			}
		}
	}
	return found
}

var testDirs = map[string]bool{}

// dataDir gives a short one: tests run in sequence, so the map needs no lock.
func dataDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dsec")
	if err != nil {
		t.Fatal(err)
	}
	testDirs[dir] = true
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

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

// busyboxRoot gives a root of two layers with a static busybox and users.
func busyboxRoot(t testing.TB) runtime.Root {
	t.Helper()
	const busybox = "/bin/busybox"
	prog, err := os.ReadFile(busybox)
	if err != nil {
		t.Skip("the boxes' programs are busybox's: install busybox-static")
	}
	programs := layerDir(t, "bin")
	if err := os.WriteFile(filepath.Join(programs, "bin/busybox"), prog, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields("sh cat ls id sleep env mount umount chroot mkdir touch rm dd ps kill hostname stat " +
		"grep tail head ip wc setsid nohup unshare mknod chown chmod ln readlink test yes true false df nc ping sysctl") {
		if err := os.Symlink("busybox", filepath.Join(programs, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	mounts := layerDir(t, "proc", "dev", "sys", "tmp", "run", "workspace", "home/user", "root", "etc", "data")
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
		"etc/group":  "root:x:0:\nuser:x:1000:\n",
	} {
		if err := os.WriteFile(filepath.Join(mounts, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for dir, mode := range map[string]os.FileMode{"tmp": os.ModeSticky | 0o777, "root": 0o700} {
		if err := os.Chmod(filepath.Join(mounts, dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"workspace", "home/user"} {
		if err := os.Chown(filepath.Join(mounts, dir), 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	return runtime.Root{Template: "test@1", Layers: []runtime.Layer{{Path: programs}, {Path: mounts}}}
}

func layerDir(t testing.TB, dirs ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
