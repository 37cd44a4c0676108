package launch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Leftovers lists what a daemon's boxes left on the machine: guests, box
// cgroups, mounts, loop devices and box directories of the data directory. After
// every session is stopped (and the pool drained) it must be empty: the spares of a running daemon, which
// belong to no session, are not counted. ownCgroup is the name of the data directory's cgroup, see native.CgroupName.
func Leftovers(dataDir, ownCgroup string) []string {
	known := spares(dataDir)
	for {
		left := leftovers(dataDir, ownCgroup, known)
		now := spares(dataDir)
		n := len(known)
		maps.Copy(known, now)
		if len(left) == 0 || len(known) == n {
			return left
		}
		// A spare has come while it was looked.
	}
}

func leftovers(dataDir, ownCgroup string, spares map[string]bool) []string {
	left := append(groupsBelow(ownCgroup, spares), mountsBelow(dataDir+"/boxes")...)
	left = append(left, loopsBelow(dataDir+"/boxes")...)
	for _, pid := range guests(dataDir, ownCgroup, spares) {
		left = append(left, fmt.Sprintf("process %d dsec-guest", pid))
	}
	for _, sub := range []string{"boxes", "run/boxes"} {
		entries, _ := os.ReadDir(filepath.Join(dataDir, sub))
		for _, e := range entries {
			if id, ok := strings.CutSuffix(e.Name(), spareSuffix); !ok || !spares[id] {
				left = append(left, "directory "+filepath.Join(sub, e.Name()))
			}
		}
	}
	return left
}

// Guests are the first processes of the boxes of sessions and of the pool, as the machine sees them.
func Guests(dataDir, ownCgroup string) []int { return guests(dataDir, ownCgroup, spares(dataDir)) }

func guests(dataDir, ownCgroup string, spares map[string]bool) (pids []int) {
	for pid, name := range Processes(dataDir) {
		if strings.HasPrefix(name, "dsec-guest") && !spares[boxOf(pid, ownCgroup)] {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// Zombies counts the dead children of a process that it has not waited for, as the machine sees them.
func Zombies(parent int) (n int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		fields := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(parent) {
			n++
		}
	}
	return n
}

// spareSuffix is that of the socket of a guest that waits for a box to be asked for.
const spareSuffix = ".spare.sock"

func spares(dataDir string) map[string]bool {
	ids := map[string]bool{}
	entries, _ := os.ReadDir(filepath.Join(dataDir, "run/boxes"))
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), spareSuffix); ok {
			ids[id] = true
		}
	}
	return ids
}

// boxOf gives the id of the box that a process is in, by its cgroup2 directory.
func boxOf(pid int, ownCgroup string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	_, path, _ := strings.Cut("\n"+string(b), "\n0::/"+ownCgroup+"/")
	path, _, _ = strings.Cut(path, "\n")
	id, _, _ := strings.Cut(path, "/")
	return id
}

// Remains lists what is left of a data directory outside of it: after `dsec down`
// nothing of it may be on the machine but its files. It counts what Leftovers does and the daemon's
// own processes, cgroups, mounts and loop devices.
func Remains(dataDir, ownCgroup string) []string {
	left := append(leftovers(dataDir, ownCgroup, nil), mountsBelow(dataDir)...)
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

func groupsBelow(ownCgroup string, spares map[string]bool) (left []string) {
	for _, pattern := range ownGroups(ownCgroup) {
		groups, _ := filepath.Glob(pattern + "/*")
		for _, g := range groups {
			id := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(g), ".g"), ".a")
			if st, err := os.Stat(g); err == nil && st.IsDir() && !keptGroup(id) && !spares[id] {
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
