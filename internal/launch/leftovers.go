package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Leftovers lists what a daemon's boxes left on the machine: guests, box
// cgroups, mounts, loop devices and box directories of the data directory. After
// every session is stopped (and the pool drained) it must be empty. ownCgroup is the
// name of the data directory's cgroup, see native.CgroupName.
func Leftovers(dataDir, ownCgroup string) []string {
	left := append(groupsBelow(ownCgroup), mountsBelow(dataDir+"/boxes")...)
	left = append(left, loopsBelow(dataDir+"/boxes")...)
	for pid, name := range Processes(dataDir) {
		if strings.HasPrefix(name, "dsec-guest") {
			left = append(left, fmt.Sprintf("process %d %s", pid, name))
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

// Remains lists what is left of a data directory outside of it: after `dsec down`
// nothing of it may be on the machine but its files. It counts what Leftovers does and the daemon's
// own processes, cgroups, mounts and loop devices.
func Remains(dataDir, ownCgroup string) []string {
	left := append(Leftovers(dataDir, ownCgroup), mountsBelow(dataDir)...)
	left = append(left, loopsBelow(dataDir)...)
	for pid, name := range Processes(dataDir) {
		left = append(left, fmt.Sprintf("process %d %s", pid, name))
	}
	for _, pattern := range ownGroups(ownCgroup) {
		groups, _ := filepath.Glob(pattern)
		for _, g := range groups {
			left = append(left, "cgroup "+g)
		}
	}
	return left
}

// ownGroups are where the data directory's cgroup is, by layout: one for each
// hierarchy of a hybrid host, or the one of a host with cgroup v2 only.
func ownGroups(name string) []string {
	return []string{"/sys/fs/cgroup/*/" + name, "/sys/fs/cgroup/" + name}
}

func groupsBelow(ownCgroup string) (left []string) {
	for _, pattern := range ownGroups(ownCgroup) {
		groups, _ := filepath.Glob(pattern + "/*")
		for _, g := range groups {
			if st, err := os.Stat(g); err == nil && st.IsDir() && !keptGroup(filepath.Base(g)) {
				left = append(left, "cgroup "+g)
			}
		}
	}
	return left
}

// keptGroup tells the node's own groups (no box id begins with "_") from those of boxes.
func keptGroup(name string) bool { return strings.HasPrefix(name, "_") }

func mountsBelow(dir string) (left []string) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && (f[4] == dir || strings.HasPrefix(f[4], dir+"/")) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	return left
}

func loopsBelow(dir string) (left []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), dir+"/") {
			left = append(left, "loop "+strings.TrimSpace(string(b)))
		}
	}
	return left
}
