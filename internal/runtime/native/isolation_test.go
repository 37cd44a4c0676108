package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

func TestIdsAreTheBoxesOwn(t *testing.T) {
	m := newMachine(t)
	a, b := m.create(), m.create()
	if a.slot == b.slot {
		t.Fatal("two boxes have the same id range")
	}
	g := guestOf(t, a)
	if got := out(t, g, "root", "id -u; id -g; stat -c %u /etc/passwd /bin/busybox /proc/sys"); got != "0\n0\n0\n0\n65534" {
		t.Errorf("ids: %q", got)
	}
	if got := out(t, g, "user", "id -u; stat -c %u:%g /workspace; touch /workspace/x; stat -c %u /workspace/x"); got != "1000\n1000:1000\n1000" {
		t.Errorf("ids of the user: %q", got)
	}
	// On the host they are nobody that exists.
	background(t, g, "sleep 1000")
	for _, pid := range m.groups.Pids(a.id) {
		var uid string
		raw, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); f[0] == "Uid:" {
				uid = f[1]
			}
		}
		if len(uid) < 6 {
			t.Errorf("process %d runs as %s on the host", pid, uid)
		}
	}
}

func TestNamespaces(t *testing.T) {
	m := newMachine(t)
	b := m.create(func(c *runtime.Config) { c.Hostname = "alpha" })
	g := guestOf(t, b)
	for _, ns := range []string{"user", "mnt", "pid", "ipc", "uts", "net", "cgroup"} {
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		if got := out(t, g, "user", "readlink /proc/self/ns/"+ns); got == ours || got == "" {
			t.Errorf("the box shares the %s namespace", ns)
		}
	}
	if got := out(t, g, "root", "hostname"); got != "alpha" {
		t.Errorf("hostname %q", got)
	}
	if got := out(t, g, "root", "ls -d /proc/[0-9]* | wc -l"); len(got) > 1 {
		t.Errorf("%s processes are seen", got)
	}
	if got := out(t, g, "root", "ip -o link | wc -l; ip -o link | grep -c 'lo:.*UP'"); got != "1\n1" {
		t.Errorf("interfaces: %q", got)
	}
	refused(t, g, "root", "ip route | grep .")
	refused(t, g, "root", "nc -w 1 1.1.1.1 80 </dev/null")
	mounts := out(t, g, "root", "cat /proc/self/mountinfo")
	for _, word := range []string{m.dir, "/sys/fs/cgroup", "/dev/vda", "ext4"} {
		if strings.Contains(mounts, word) {
			t.Errorf("%s is seen in the mount table:\n%s", word, mounts)
		}
	}
}

func TestGuestIsOutOfReach(t *testing.T) {
	m := newMachine(t)
	g := guestOf(t, m.create())
	for _, user := range []string{"root", "user"} {
		for _, script := range []string{
			"readlink /proc/1/fd/0", "cat /proc/1/fd/3", "echo x > /proc/1/fd/4", "cat /proc/1/environ", "cat /proc/1/maps", "readlink /proc/1/exe", "ls /proc/1/root/",
			"echo x > /proc/1/mem",
		} {
			refused(t, g, user, script)
		}
		_ = run(t, g, user, "for s in 1 2 3 6 9 10 11 15 19 20; do kill -$s 1; done 2>/dev/null")
		if got := out(t, g, user, "echo alive"); got != "alive" {
			t.Errorf("after signals from %s: %q", user, got)
		}
	}
}

func TestNoDescriptorLeaks(t *testing.T) {
	m := newMachine(t)
	leak, err := os.Open("/") // without the care of package os it would be inherited
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	b := m.create()
	// The guest holds its listening socket and what its boot gave it; nothing leads to the host's files.
	fds, err := filepath.Glob(filepath.Join("/proc", itoa(b.pid), "fd/*"))
	if err != nil || len(fds) == 0 {
		t.Fatalf("descriptors of the guest: %v, %v", fds, err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		switch {
		case to == "/dev/null", strings.HasPrefix(to, "socket:"), strings.HasPrefix(to, "pipe:"), strings.HasPrefix(to, "anon_inode:"):
		case strings.Contains(to, "tasks"), strings.HasSuffix(to, "/agent"), strings.Contains(to, "agent/op-"),
			strings.HasSuffix(to, "memory.oom_control"), strings.HasSuffix(to, "memory.events"), strings.HasSuffix(to, "pids.events"):
		default:
			t.Errorf("the guest holds %s", to)
		}
	}
	if got := out(t, guestOf(t, b), "root", "ls /proc/self/fd | wc -l"); got != "4" { // 0, 1, 2, and the directory being read
		t.Errorf("an op has %s descriptors", got)
	}
}

func TestMountsAreShut(t *testing.T) {
	m := newMachine(t)
	for _, writable := range []bool{false, true} {
		g := guestOf(t, m.create(func(c *runtime.Config) { c.RootWritable = writable }))
		for _, script := range []string{
			"mount -t tmpfs none /mnt", "mount -o remount,rw /", "mount -o remount,bind,dev /", "umount /proc", "umount /dev",
			"unshare -U true", "unshare -m true", "mknod /tmp/d b 7 0", "mknod /workspace/d c 1 3",
			"chmod 0600 /dev/null", "touch /dev/x", "rm /dev/null", "echo 1 > /proc/sys/kernel/panic",
			"sysctl -w kernel.hostname=x", "dd if=/proc/kcore of=/dev/null bs=1 count=1 2>/dev/null && head -c1 /proc/kcore | grep -q .",
			"grep -q . /proc/sysrq-trigger", "grep -q . /proc/kallsyms", "grep -q . /proc/keys", "ls /sys/fs",
		} {
			refused(t, g, "root", script)
		}
		if writable {
			out(t, g, "root", "touch /etc/x && rm /etc/group")
		} else {
			refused(t, g, "root", "touch /etc/x")
			refused(t, g, "root", "rm /etc/group")
		}
		out(t, g, "user", "echo x > /dev/null && head -c 1 /dev/zero > /dev/null && echo x > /tmp/x && echo x > /dev/shm/x && test -t 0 || true")
	}
}

func TestCapabilities(t *testing.T) {
	m := newMachine(t)
	g := guestOf(t, m.create())
	// CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE SYS_CHROOT SETFCAP
	const ten = "00000000800404fb"
	if got := out(t, g, "root", "grep -E 'CapBnd|NoNewPrivs|Seccomp:' /proc/self/status"); !strings.Contains(got, ten) || !strings.Contains(got, "NoNewPrivs:\t1") || !strings.Contains(got, "Seccomp:\t2") {
		t.Errorf("status: %s", got)
	}
	if got := out(t, g, "user", "grep CapEff /proc/self/status"); got != "CapEff:\t0000000000000000" {
		t.Errorf("the user has %s", got)
	}
	lifted := guestOf(t, m.create(func(c *runtime.Config) { c.NewPrivileges = true }))
	if got := out(t, lifted, "user", "grep NoNewPrivs /proc/self/status"); got != "NoNewPrivs:\t0" {
		t.Errorf("with new_privileges: %s", got)
	}
}

func TestHostView(t *testing.T) {
	m := newMachine(t)
	host := layerDir(t, "lib", "private")
	for name, content := range map[string]string{"lib/data": "shown", "private/key": "secret"} {
		if err := os.WriteFile(filepath.Join(host, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := m.config(func(c *runtime.Config) {
		skeleton := layerDir(t, "usr", "proc", "dev", "tmp", "workspace", "bin")
		c.Root = runtime.Root{
			HostView: true, Layers: []runtime.Layer{{Path: skeleton}},
			HostBinds: []runtime.HostBind{{Source: host, Target: "/usr", Masked: []string{"private"}}, {Source: filepath.Join(m.root.Layers[0].Path, "bin"), Target: "/bin"}},
		}
		c.User = "1000"
	})
	b, err := m.Create(ctx(t), c)
	if err != nil {
		t.Fatal(err)
	}
	g := guestOf(t, b)
	if got := out(t, g, "root", "cat /usr/lib/data; ls /usr/private | wc -l; stat -c %u /usr/lib/data"); got != "shown0\n65534" {
		t.Errorf("got %q", got)
	}
	refused(t, g, "root", "touch /usr/lib/x")
	c.ID, c.RootWritable = "writable", true
	if _, err := m.Create(ctx(t), c); errdefs.From(err).Reason != errdefs.Unsupported {
		t.Errorf("a writable view of the host: %v", err)
	}
}

func TestDataMounts(t *testing.T) {
	m := newMachine(t)
	data := layerDir(t, "set")
	if err := os.WriteFile(filepath.Join(data, "set/one"), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*box{
		"read-only": m.create(func(c *runtime.Config) {
			c.Mounts = []runtime.DataMount{{Source: data, Target: "/data"}, {Source: filepath.Join(data, "set/one"), Target: "/srv/deep/one"}}
		}),
		"writable": m.create(func(c *runtime.Config) {
			c.RootWritable = true
			c.Mounts = []runtime.DataMount{{Source: data, Target: "/data"}, {Source: filepath.Join(data, "set/one"), Target: "/srv/deep/one"}}
		}),
	} {
		g := guestOf(t, b)
		if got := out(t, g, "user", "cat /data/set/one /srv/deep/one"); got != "11" {
			t.Errorf("%s: %q", name, got)
		}
		refused(t, g, "root", "touch /data/x")
		refused(t, g, "root", "echo 2 > /srv/deep/one")
	}
}
