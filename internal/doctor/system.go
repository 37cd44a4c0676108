package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// capability is one bit of CapEff.
type capability struct {
	bit  uint
	name string
}

// Capabilities that the daemon cannot do without, and those that it uses to
// raise its own limits.
var needed = []capability{
	{0, "CHOWN"}, {1, "DAC_OVERRIDE"}, {3, "FOWNER"}, {5, "KILL"}, {6, "SETGID"}, {7, "SETUID"}, {8, "SETPCAP"},
	{19, "SYS_PTRACE"}, {21, "SYS_ADMIN"}, {27, "MKNOD"},
}

var wanted = []capability{{24, "SYS_RESOURCE"}}

func (r *report) machine() {
	r.group = "system"
	r.kernel()
	if r.h.Euid != 0 {
		r.add("root", Fail, fmt.Sprintf("runs as uid %d", r.h.Euid), "run it as root: `sudo dsec doctor`")
	} else {
		r.add("root", OK, "runs as root", "")
	}
	r.capabilities()
	r.container()
	r.clock()
}

func (r *report) kernel() {
	rel := r.h.Kernel()
	var major, minor int
	if n, _ := fmt.Sscanf(rel, "%d.%d", &major, &minor); n != 2 {
		r.add("kernel", Warn, fmt.Sprintf("release %q cannot be read", rel), "the probes below decide")
		return
	}
	found := "Linux " + rel + " " + r.h.Arch
	switch {
	case major < 5 || major == 5 && minor < 10:
		r.add("kernel", Fail, found, "use a kernel of 5.19 or newer; Debian 12 and Ubuntu 24.04 have one")
	case major == 5 && minor < 19:
		r.add("kernel", Warn, found, "the native runtime needs id-mapped mounts under overlay (5.19); the probes below decide")
	default:
		r.add("kernel", OK, found, "")
	}
}

func (r *report) capabilities() {
	var eff uint64
	for _, line := range strings.Split(r.read("/proc/self/status"), "\n") {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			eff, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	const remedy = "run as root; in a container add --privileged, or --cap-add for each of them"
	if m := lacking(eff, needed); len(m) > 0 {
		r.add("capabilities", Fail, "lacks "+strings.Join(m, " "), remedy)
	} else if m := lacking(eff, wanted); len(m) > 0 {
		r.add("capabilities", Warn, "lacks "+strings.Join(m, " ")+", so that the daemon cannot raise its own limits", remedy)
	} else {
		r.add("capabilities", OK, "all that are needed", "")
	}
}

func lacking(eff uint64, caps []capability) (names []string) {
	for _, c := range caps {
		if eff&(1<<c.bit) == 0 {
			names = append(names, c.name)
		}
	}
	return names
}

// container finds out whether we already are in one: nested boxes need more rights there.
func (r *report) container() {
	kind := ""
	for _, m := range []struct{ file, kind string }{{"/.dockerenv", "Docker"}, {"/run/.containerenv", "Podman"}, {"/var/run/secrets/kubernetes.io", "Kubernetes"}} {
		if r.exists(m.file) {
			kind = m.kind
		}
	}
	for _, kv := range strings.Split(r.read("/proc/1/environ"), "\x00") {
		if v, ok := strings.CutPrefix(kv, "container="); ok && kind == "" {
			kind = v
		}
	}
	if kind == "" {
		r.add("container", OK, "not inside a container", "")
		return
	}
	r.add("container", Warn, "inside a "+kind+" container", "start that container with --privileged --cgroupns=host and the data directory on a volume (an overlay cannot lie on an overlay)")
}

func (r *report) clock() {
	now := r.h.Now()
	if now.Year() < 2024 {
		r.add("clock", Fail, "the clock says "+now.UTC().Format("2006-01-02 15:04"), "set the clock: certificates and deadlines depend on it")
		return
	}
	synced, err := r.h.Synced()
	switch {
	case err != nil:
		r.add("clock", Warn, "cannot be read: "+err.Error(), "check it with timedatectl")
	case !synced:
		r.add("clock", Warn, now.UTC().Format("2006-01-02 15:04:05")+" UTC, not synchronised", "run a time service (systemd-timesyncd or chrony), so that trajectories of several nodes can be compared")
	default:
		r.add("clock", OK, now.UTC().Format("2006-01-02 15:04:05")+" UTC, synchronised", "")
	}
}

func (r *report) userns() {
	r.group = "namespaces"
	if v := r.read("/proc/sys/kernel/unprivileged_userns_clone"); v == "0" {
		s := Warn
		if r.h.Euid != 0 {
			s = Fail
		}
		r.add("userns-unprivileged", s, "kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1, and the same line in /etc/sysctl.d/dsec.conf")
	} else {
		r.add("userns-unprivileged", OK, "not restricted by kernel.unprivileged_userns_clone", "")
	}
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		name := "max_" + kind + "_namespaces"
		n, ok := r.number("/proc/sys/user/" + name)
		remedy := fmt.Sprintf("sysctl -w user.%s=65536, and the same line in /etc/sysctl.d/dsec.conf", name)
		switch {
		case !ok:
			r.add("userns-"+kind, Fail, "user."+name+" does not exist", "use a kernel with namespaces of all kinds")
		case n == 0:
			r.add("userns-"+kind, Fail, "user."+name+" is 0", remedy)
		case n < 6000:
			r.add("userns-"+kind, Warn, fmt.Sprintf("user.%s is %d: at most that many boxes", name, n), remedy)
		default:
			r.add("userns-"+kind, OK, fmt.Sprintf("user.%s is %d", name, n), "")
		}
	}
}

// security finds the kernel's other policies that forbid namespaces or mounts.
func (r *report) security() {
	r.group = "security"
	switch {
	case r.read("/sys/module/apparmor/parameters/enabled") != "Y":
		r.add("apparmor", OK, "not enabled", "")
	case r.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		s := Warn
		if r.h.Euid != 0 {
			s = Fail
		}
		r.add("apparmor", s, "restricts user namespaces of unprivileged processes", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give dsec an AppArmor profile with `userns,`; a daemon run by root is not affected")
	default:
		r.add("apparmor", OK, "enabled, and does not restrict user namespaces", "")
	}
	if c := r.read("/proc/self/attr/current"); c != "" && c != "unconfined" && strings.Contains(c, "(enforce)") {
		r.add("apparmor-profile", Warn, "this process is confined by "+c, "run the daemon unconfined, or allow it mount, umount, pivot_root and userns")
	}
	switch r.read("/sys/fs/selinux/enforce") {
	case "1":
		r.add("selinux", Warn, "enforcing: it may refuse overlay mounts on unlabelled directories", "label the data directory (`chcon -Rt container_file_t DIR`), or find out with `setenforce 0` and ausearch -m avc")
	case "0":
		r.add("selinux", OK, "permissive", "")
	default:
		r.add("selinux", OK, "not enabled", "")
	}
	if v := r.read("/sys/kernel/security/lockdown"); strings.Contains(v, "[confidentiality]") {
		r.add("lockdown", Warn, "the kernel is locked down", "boot without lockdown=confidentiality if a probe below fails")
	}
}
