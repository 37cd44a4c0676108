package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// tunable is a kernel setting with the least value that a full machine wants.
type tunable struct {
	name, file  string
	least, want int64
	what        string
}

var tunables = []tunable{
	{"pid-max", "kernel/pid_max", 4096, 131072, "processes of the machine"},
	{"threads-max", "kernel/threads-max", 4096, 131072, "threads of the machine"},
	{"file-max", "fs/file-max", 65536, 1 << 20, "open files of the machine"},
	{"mount-max", "fs/mount-max", 1000, 10000, "mounts in a namespace"},
	{"inotify-instances", "fs/inotify/max_user_instances", 16, 128, "watchers of a user, for file watches in boxes"},
	{"inotify-watches", "fs/inotify/max_user_watches", 8192, 65536, "watched files of a user"},
	{"pty-max", "kernel/pty/max", 64, 4096, "terminals of the machine, for shells in boxes"},
	{"max-map-count", "vm/max_map_count", 1024, 65530, "memory areas of a process"},
}

func (r *report) limits() {
	r.group = "limits"
	n, err := r.h.OpenFiles()
	switch remedy := "set LimitNOFILE=1048576 in the service, or `ulimit -Hn 1048576` before starting the daemon"; {
	case err != nil:
		r.add("nofile", Warn, "cannot be read: "+err.Error(), remedy)
	case n < 4096:
		r.add("nofile", Fail, fmt.Sprintf("at most %d open files", n), remedy)
	case n < 65536:
		r.add("nofile", Warn, fmt.Sprintf("at most %d open files, too few for thousands of boxes", n), remedy)
	default:
		r.add("nofile", OK, fmt.Sprintf("at most %d open files", n), "")
	}
	for _, t := range tunables {
		v, ok := r.number("/proc/sys/" + t.file)
		key := strings.ReplaceAll(t.file, "/", ".")
		found := fmt.Sprintf("%s is %d: %s", key, v, t.what)
		remedy := fmt.Sprintf("sysctl -w %s=%d, and the same line in /etc/sysctl.d/dsec.conf", key, t.want)
		switch {
		case !ok:
			r.add(t.name, Warn, key+" cannot be read", "mount /proc, or use a kernel that has it")
		case v < t.least:
			r.add(t.name, Fail, found, remedy)
		case v < t.want:
			r.add(t.name, Warn, found, remedy)
		default:
			r.add(t.name, OK, found, "")
		}
	}
	// Kernels before 6.3 do not have it and forbid nothing.
	if v, _ := r.number("/proc/sys/vm/memfd_noexec"); v == 2 {
		r.add("memfd-exec", Warn, "vm.memfd_noexec is 2: programs in anonymous files are forbidden, so that no unused box rests, and each takes 0.7 MiB more",
			"sysctl -w vm.memfd_noexec=1, and the same line in /etc/sysctl.d/dsec.conf")
	} else {
		r.add("memfd-exec", OK, "programs in anonymous files are allowed: unused boxes rest", "")
	}
}

func (r *report) resources() {
	r.group = "resources"
	mem := map[string]uint64{}
	for _, line := range strings.Split(r.read("/proc/meminfo"), "\n") {
		k, v, ok := strings.Cut(line, ":")
		f := strings.Fields(v)
		if ok && len(f) > 0 {
			n, _ := strconv.ParseUint(f[0], 10, 64)
			mem[k] = n << 10
		}
	}
	total, free := mem["MemTotal"], mem["MemAvailable"]
	found := fmt.Sprintf("%s available of %s", size(free), size(total))
	switch {
	case total == 0:
		r.add("memory", Warn, "/proc/meminfo cannot be read", "mount /proc")
	case free < 256<<20:
		r.add("memory", Fail, found, "free some: memory is promised to boxes once and never twice")
	case free < total/10:
		r.add("memory", Warn, found, "free some: memory is promised to boxes once and never twice")
	default:
		r.add("memory", OK, found, "")
	}
	if s := mem["SwapTotal"]; s > 0 {
		r.add("swap", Warn, size(s)+" of swap", "a box over its memory swaps before it is stopped, and slows the others: `swapoff -a` on machines that only run boxes")
	} else {
		r.add("swap", OK, "none", "")
	}
}
