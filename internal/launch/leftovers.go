package launch

import (
	"os"
	"path/filepath"
	"strings"
)

// Leftovers lists what a daemon's boxes left on the machine: guests, box
// cgroups, mounts, loop devices and box directories of the data directory. After
// every session is stopped (and the pool drained) it must be empty. ownCgroup is the
// name of the data directory's cgroup, see native.CgroupName.
func Leftovers(dataDir, ownCgroup string) []string {
	var left []string
	for _, name := range Processes(dataDir) {
		if strings.HasPrefix(name, "dsec-guest") {
			left = append(left, "process "+name)
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + ownCgroup + "/*", "/sys/fs/cgroup/" + ownCgroup + "/*"} {
		groups, _ := filepath.Glob(pattern)
		for _, g := range groups {
			if st, err := os.Stat(g); err == nil && st.IsDir() && !keptGroup(filepath.Base(g)) {
				left = append(left, "cgroup "+g)
			}
		}
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, dataDir+"/boxes") {
				left = append(left, "mount "+strings.TrimSpace(line))
			}
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		if b, err := os.ReadFile(l); err == nil && strings.HasPrefix(string(b), dataDir+"/boxes") {
			left = append(left, "loop "+strings.TrimSpace(string(b)))
		}
	}
	for _, sub := range []string{"boxes", "run/boxes"} {
		entries, _ := os.ReadDir(filepath.Join(dataDir, sub))
		for _, e := range entries {
			left = append(left, "directory "+filepath.Join(sub, e.Name()))
		}
	}
	return left
}

// keptGroup tells the node's own groups (no box id begins with "_") from those of boxes.
func keptGroup(name string) bool { return strings.HasPrefix(name, "_") }
