package doctor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

const hybrid = `31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw`

// healthy is a machine on which every check passes.
func healthy() (Host, fstest.MapFS) {
	files := map[string]string{
		"proc/self/status": "CapEff:\t000001ffffffffff", "proc/self/mountinfo": hybrid, "proc/filesystems": "nodev\toverlay\n",
		"proc/meminfo":   "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\nSwapTotal: 0 kB",
		"proc/1/environ": "HOME=/", "proc/1/cmdline": "init",
		"proc/sys/kernel/pid_max": "4194304", "proc/sys/kernel/threads-max": "400000", "proc/sys/fs/file-max": "9223372036854775807",
		"proc/sys/fs/mount-max": "100000", "proc/sys/fs/inotify/max_user_instances": "128", "proc/sys/fs/inotify/max_user_watches": "65536",
		"proc/sys/kernel/pty/max": "4096", "proc/sys/vm/max_map_count": "65530",
		"sys/fs/cgroup/unified/cgroup.controllers": "", "var/lib/x": "",
	}
	for _, k := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		files["proc/sys/user/max_"+k+"_namespaces"] = "90000"
	}
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return Host{
		FS: m, DataDir: "/var/lib/dsec", Arch: "amd64",
		Kernel: func() string { return "6.18.1" },
		Disk: func(string) (Disk, error) {
			return Disk{Type: "ext4", Free: 50 << 30, Size: 99 << 30, Inodes: 6e6, InodesFree: 5e6}, nil
		},
		OpenFiles: func() (uint64, error) { return 1 << 20, nil },
		Synced:    func() (bool, error) { return true, nil },
		Now:       func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) },
		Probes:    []Probe{{Name: "probe-x", Need: Fail, Remedy: "r", Run: func(context.Context) (string, error) { return "works", nil }}},
	}, m
}

func TestHealthyMachine(t *testing.T) {
	h, _ := healthy()
	for _, c := range Run(t.Context(), h) {
		if c.Status != OK || c.Remedy != "" || c.Found == "" || c.Group == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestEachTrouble(t *testing.T) {
	set := func(name, text string) func(*Host, fstest.MapFS) {
		return func(_ *Host, m fstest.MapFS) { m[name] = &fstest.MapFile{Data: []byte(text)} }
	}
	disk := func(d Disk) func(*Host, fstest.MapFS) {
		return func(h *Host, _ fstest.MapFS) { h.Disk = func(string) (Disk, error) { return d, nil } }
	}
	for _, c := range []struct {
		name, check string
		want        Status
		break_      func(*Host, fstest.MapFS)
	}{
		{"old kernel", "kernel", Fail, func(h *Host, _ fstest.MapFS) { h.Kernel = func() string { return "4.19.0" } }},
		{"5.10", "kernel", Warn, func(h *Host, _ fstest.MapFS) { h.Kernel = func() string { return "5.10.0-9" } }},
		{"not root", "root", Fail, func(h *Host, _ fstest.MapFS) { h.Euid = 1000 }},
		{"few capabilities", "capabilities", Fail, set("proc/self/status", "CapEff: 00000000a80425fb")},
		{"docker", "container", Warn, set(".dockerenv", "")},
		{"lxc", "container", Warn, set("proc/1/environ", "A=b\x00container=lxc\x00")},
		{"no time service", "clock", Warn, func(h *Host, _ fstest.MapFS) { h.Synced = func() (bool, error) { return false, nil } }},
		{"1970", "clock", Fail, func(h *Host, _ fstest.MapFS) { h.Now = func() time.Time { return time.Unix(0, 0) } }},
		{"userns_clone 0", "userns-unprivileged", Warn, set("proc/sys/kernel/unprivileged_userns_clone", "0\n")},
		{"no user namespaces", "userns-user", Fail, set("proc/sys/user/max_user_namespaces", "0")},
		{"few net namespaces", "userns-net", Warn, set("proc/sys/user/max_net_namespaces", "100")},
		{"selinux", "selinux", Warn, set("sys/fs/selinux/enforce", "1")},
		{"confined", "apparmor-profile", Warn, set("proc/self/attr/current", "docker-default (enforce)")},
		{"no cgroup2", "cgroup2", Fail, set("proc/self/mountinfo", strings.ReplaceAll(hybrid, "cgroup2", "tmpfs"))},
		{"read-only cgroups", "cgroup-writable", Fail, set("proc/self/mountinfo", strings.ReplaceAll(hybrid, "pids rw -", "pids ro -"))},
		{"no memory controller", "cgroup-memory", Fail, set("proc/self/mountinfo", strings.ReplaceAll(hybrid, ",memory", ",perf_event"))},
		{"no overlay", "overlay", Fail, set("proc/filesystems", "ext4")},
		{"overlay on overlay", "data-dir", Fail, disk(Disk{Type: "overlay", Free: 1 << 40})},
		{"data on tmpfs", "data-dir", Warn, disk(Disk{Type: "tmpfs", Free: 1 << 40})},
		{"read-only data", "data-dir", Fail, disk(Disk{Type: "ext4", Free: 1 << 40, ReadOnly: true})},
		{"disk full", "disk", Fail, disk(Disk{Type: "ext4", Free: 1 << 20, Size: 1 << 40})},
		{"inodes gone", "inodes", Warn, disk(Disk{Type: "ext4", Free: 1 << 40, Inodes: 1e6, InodesFree: 10})},
		{"split data dir", "upper-work", Warn, set("proc/self/mountinfo", hybrid+"\n50 1 8:1 / /var/lib/dsec/boxes rw - ext4 /dev/sdb rw")},
		{"few files", "nofile", Warn, func(h *Host, _ fstest.MapFS) { h.OpenFiles = func() (uint64, error) { return 8192, nil } }},
		{"small pid_max", "pid-max", Warn, set("proc/sys/kernel/pid_max", "32768")},
		{"few threads", "threads-max", Fail, set("proc/sys/kernel/threads-max", "100")},
		{"inotify", "inotify-instances", Fail, set("proc/sys/fs/inotify/max_user_instances", "1")},
		{"no programs in memory", "memfd-exec", Warn, set("proc/sys/vm/memfd_noexec", "2")},
		{"no memory", "memory", Fail, set("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 1000 kB")},
		{"swap", "swap", Warn, set("proc/meminfo", "MemTotal: 100 kB\nSwapTotal: 1000 kB")},
		{"left group", "orphans", Warn, set("sys/fs/cgroup/memory/dsec-0011aabb/x/tasks", "")},
		{"left guest", "orphans", Warn, set("proc/77/cmdline", "/var/lib/dsec/bin/dsec-guest-0123\x00")},
		{"left mount", "orphans", Warn, set("proc/self/mountinfo", hybrid+"\n51 1 0:9 / /var/lib/dsec/boxes/a/root rw - overlay o rw")},
		{"probe", "probe-x", Fail, func(h *Host, _ fstest.MapFS) {
			h.Probes[0].Run = func(context.Context) (string, error) { return "", errors.New("EPERM") }
		}},
		{"server away", "server", Warn, func(h *Host, _ fstest.MapFS) {
			h.Server = func(context.Context) (string, error) { return "", errors.New("nobody answers") }
		}},
	} {
		h, m := healthy()
		c.break_(&h, m)
		checks := Run(t.Context(), h)
		found := false
		for _, got := range checks {
			if got.Name != c.check {
				continue
			}
			found = true
			if got.Status != c.want || got.Remedy == "" {
				t.Errorf("%s: %+v, want %s", c.name, got, c.want)
			}
		}
		if !found {
			t.Errorf("%s: no check %s", c.name, c.check)
		}
		if w := Worst(checks); w == OK {
			t.Errorf("%s: the worst is ok", c.name)
		}
	}
}

func TestUnprivilegedFailsWhereRootOnlyWarns(t *testing.T) {
	h, m := healthy()
	h.Euid = 1000
	m["proc/sys/kernel/unprivileged_userns_clone"] = &fstest.MapFile{Data: []byte("0")}
	m["sys/module/apparmor/parameters/enabled"] = &fstest.MapFile{Data: []byte("Y\n")}
	m["proc/sys/kernel/apparmor_restrict_unprivileged_userns"] = &fstest.MapFile{Data: []byte("1\n")}
	for _, c := range Run(t.Context(), h) {
		if (c.Name == "userns-unprivileged" || c.Name == "apparmor") && c.Status != Fail {
			t.Errorf("%+v", c)
		}
	}
}

func TestV2Controllers(t *testing.T) {
	h, m := healthy()
	m["proc/self/mountinfo"] = &fstest.MapFile{Data: []byte("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")}
	m["sys/fs/cgroup/cgroup.controllers"] = &fstest.MapFile{Data: []byte("cpu io memory pids")}
	m["sys/fs/cgroup/cgroup.subtree_control"] = &fstest.MapFile{Data: []byte("cpu pids")}
	want := map[string]Status{"cgroup-cpu": OK, "cgroup-pids": OK, "cgroup-memory": Warn, "cgroup-io": OK}
	for _, c := range Run(t.Context(), h) {
		if w, ok := want[c.Name]; ok && c.Status != w {
			t.Errorf("%+v, want %s", c, w)
		}
	}
}

func TestDaemonOwnsItsBoxes(t *testing.T) {
	h, m := healthy()
	m["proc/77/cmdline"] = &fstest.MapFile{Data: []byte("/x/dsec-guest\x00")}
	m["proc/78/cmdline"] = &fstest.MapFile{Data: []byte("/usr/bin/dsec\x00up\x00")}
	for _, c := range Run(t.Context(), h) {
		if c.Name == "orphans" && c.Status != OK {
			t.Errorf("%+v", c)
		}
	}
}

// On the real machine every check says something, and the probes leave nothing.
func TestThisMachine(t *testing.T) {
	dir := t.TempDir()
	checks := Run(t.Context(), Linux(dir))
	for _, c := range checks {
		if c.Found == "" || (c.Status != OK && c.Remedy == "") {
			t.Errorf("incomplete: %+v", c)
		}
		t.Logf("%-22s %-4s %s", c.Name, c.Status, c.Found)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("probes left %v", left)
	}
}
