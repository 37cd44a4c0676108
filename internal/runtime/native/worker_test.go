package native

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The box's root could take the file worker over while it starts: it must be
// under the same filter as any agent process, and out of reach afterwards.
func TestFileWorkerIsConfined(t *testing.T) {
	m := newMachine(t)
	b := m.create()
	g := guestOf(t, b)
	if _, err := g.Stat(ctx(t), "/etc/passwd", false); err != nil {
		t.Fatal(err)
	}
	for _, pid := range m.groups.Pids(b.id) {
		proc := "/proc/" + itoa(pid)
		if cmd, _ := os.ReadFile(proc + "/cmdline"); !bytes.HasPrefix(cmd, []byte("dsec-files")) {
			continue
		}
		status, err := os.ReadFile(proc + "/status")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Seccomp:\t2", "NoNewPrivs:\t1", "CapBnd:\t00000000800404fb"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("not %q:\n%s", want, status)
			}
		}
		refused(t, g, "root", "for p in /proc/[0-9]*; do grep -q ^dsec-file[s] $p/cmdline && cat $p/environ && exit 0; done; exit 1")
		return
	}
	t.Error("there is no file worker")
}

func TestTerminalsAreFew(t *testing.T) {
	g := guestOf(t, newMachine(t).create())
	if got := out(t, g, "user", "grep devpts /proc/mounts"); !strings.Contains(got, ",max=128") {
		t.Errorf("one box could take all terminals of the machine: %s", got)
	}
}

func TestPressureOfTheMachineIsMasked(t *testing.T) {
	g := guestOf(t, newMachine(t).create())
	for _, user := range []string{"root", "user"} {
		if got := out(t, g, user, "ls /proc/pressure 2>/dev/null | wc -l"); got != "0" {
			t.Errorf("%s sees %s files in it", user, got)
		}
	}
}
