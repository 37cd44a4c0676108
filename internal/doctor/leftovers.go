package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// leftovers finds what a daemon that is gone left behind. While a daemon runs,
// everything with its name is taken as its own.
func (r *report) leftovers() {
	r.group = "leftovers"
	guests, daemons := r.processes()
	groups := r.groups()
	var mounts []string
	for _, m := range r.mounts() {
		if p := path.Clean(r.h.DataDir); m.point == p+"/boxes" || strings.HasPrefix(m.point, p+"/boxes/") {
			mounts = append(mounts, m.point)
		}
	}
	remedy := "start `dsec up` with the same data directory: it adopts boxes that live and removes the rest"
	if daemons > 0 {
		r.add("orphans", OK, fmt.Sprintf("a daemon runs and keeps watch: %d boxes, %d control groups", guests, len(groups)), "")
		return
	}
	if guests == 0 && len(groups) == 0 && len(mounts) == 0 {
		r.add("orphans", OK, "none", "")
		return
	}
	found := fmt.Sprintf("no daemon runs, but there are %d box processes, %d control groups, %d mounts", guests, len(groups), len(mounts))
	if all := slices.Concat(groups, mounts); len(all) > 0 {
		found += ": " + strings.Join(all[:min(len(all), 4)], " ")
	}
	r.add("orphans", Warn, found, remedy)
}

// processes counts boxes (their PID 1) and daemons by what they were started as.
func (r *report) processes() (guests, daemons int) {
	entries, err := fs.ReadDir(r.h.FS, "proc")
	if err != nil {
		return 0, 0
	}
	for _, e := range entries {
		if n := e.Name(); n[0] < '0' || n[0] > '9' {
			continue
		}
		args := strings.Split(r.read("/proc/"+e.Name()+"/cmdline"), "\x00")
		switch base := path.Base(args[0]); {
		case base == "dsec-guest" || strings.HasPrefix(base, "dsec-guest-"):
			guests++
		case strings.HasPrefix(base, "dsec") && slices.Contains(args[1:], "up"): // also dsec-linux-amd64
			daemons++
		}
	}
	return guests, daemons
}

// groups lists the node root groups of all hierarchies.
func (r *report) groups() []string {
	var out []string
	for _, m := range r.mounts() {
		if m.fstype != "cgroup" && m.fstype != "cgroup2" {
			continue
		}
		entries, err := fs.ReadDir(r.h.FS, strings.TrimPrefix(m.point, "/"))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), "dsec-") && !strings.HasPrefix(e.Name(), "dsec-doctor-") {
				out = append(out, path.Join(m.point, e.Name()))
			}
		}
	}
	return out
}
