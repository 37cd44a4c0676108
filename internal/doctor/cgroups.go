package doctor

import (
	"path"
	"slices"
	"strings"
)

// Hierarchy is how control groups are mounted.
type hierarchy struct {
	unified string            // mount point of cgroup2, or ""
	v1      map[string]string // controller → mount point
}

var controllers = []string{"memory", "cpu", "pids"}

func (r *report) hierarchy() hierarchy {
	h := hierarchy{v1: map[string]string{}}
	for _, m := range r.mounts() {
		switch m.fstype {
		case "cgroup2":
			if h.unified == "" {
				h.unified = m.point
			}
		case "cgroup":
			for _, c := range append([]string{"blkio", "cpuacct"}, controllers...) {
				if hasWord(m.options, c) {
					h.v1[c] = m.point
				}
			}
		}
	}
	return h
}

func (r *report) cgroups() {
	r.group = "cgroups"
	h := r.hierarchy()
	if h.unified == "" {
		r.add("cgroup2", Fail, "cgroup2 is not mounted", "boot with systemd.unified_cgroup_hierarchy=1, or `mount -t cgroup2 none /sys/fs/cgroup/unified`")
	} else {
		r.add("cgroup2", OK, "mounted at "+h.unified, "")
	}
	for _, m := range r.mounts() {
		if (m.fstype == "cgroup2" || m.fstype == "cgroup") && hasWord(m.options, "ro") {
			r.add("cgroup-writable", Fail, m.point+" is mounted read-only", "in a container start it with --privileged --cgroupns=host; else `mount -o remount,rw "+m.point+"`")
			return
		}
	}
	r.controllers(h)
}

// controllers checks that memory, cpu and pids can be limited, wherever each lives.
func (r *report) controllers(h hierarchy) {
	available := strings.Fields(r.read(path.Join(h.unified, "cgroup.controllers")))
	enabled := strings.Fields(r.read(path.Join(h.unified, "cgroup.subtree_control")))
	for _, c := range controllers {
		name := "cgroup-" + c
		at, isV1 := h.v1[c]
		switch {
		case isV1:
			r.add(name, OK, "v1 controller at "+at, "")
		case slices.Contains(available, c) && slices.Contains(enabled, c):
			r.add(name, OK, "v2 controller, enabled for children", "")
		case slices.Contains(available, c):
			r.add(name, Warn, "v2 controller is not in "+path.Join(h.unified, "cgroup.subtree_control")+"; the daemon enables it where it may", "echo +"+c+" > "+path.Join(h.unified, "cgroup.subtree_control"))
		default:
			remedy := "boot with cgroup_enable=" + c + " systemd.unified_cgroup_hierarchy=1"
			if c != "memory" {
				remedy = "use a kernel with the " + c + " controller; on v1, mount it"
			}
			r.add(name, Fail, "no hierarchy has the "+c+" controller", remedy)
		}
	}
	if _, ok := h.v1["blkio"]; !ok && !slices.Contains(available, "io") {
		r.add("cgroup-io", Warn, "no io controller", "io_limit cannot be used; boot a kernel with CONFIG_BLK_CGROUP")
	} else {
		r.add("cgroup-io", OK, "present (it acts where the disk's scheduler supports it)", "")
	}
}
