package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// hybrid has the controllers on v1 and a cgroup2 hierarchy for the rest.
type hybrid struct {
	unified int            // Node.unified; not owned
	dirs    map[string]int // controller → descriptor of the node's root group
	memsw   bool
	tcp     bool // socket buffers of TCP and UDP can be limited
	device  string
}

var needed = []string{"memory", "pids", "cpu"}

func (n *Node) openHybrid(o Options) error {
	h := &hybrid{dirs: map[string]int{}, device: o.Device}
	n.layout = h
	unified := filepath.Join(o.Mount, "unified")
	if !isCgroup2(unified) {
		return fmt.Errorf("no cgroup2 hierarchy at %s nor %s: mount one (mount -t cgroup2 none %s)", o.Mount, unified, unified)
	}
	mounts := map[string]string{"unified": unified}
	for _, c := range append(needed, "blkio") {
		if path, ok := mountPoint(o.Mount, c); ok {
			mounts[c] = path
		} else if c != "blkio" {
			return fmt.Errorf("the cgroup v1 controller %s is not mounted below %s", c, o.Mount)
		}
	}
	for c, path := range mounts {
		path = filepath.Join(path, n.name)
		if err := unix.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return wrap("mkdir", path, err)
		}
		n.paths = append(n.paths, path)
		fd, err := openDir(unix.AT_FDCWD, path)
		if err != nil {
			return err
		}
		if c == "unified" {
			n.unified = fd
		} else {
			h.dirs[c] = fd
		}
	}
	h.unified = n.unified
	h.memsw = unix.Faccessat(h.dirs["memory"], "memory.memsw.limit_in_bytes", unix.F_OK, 0) == nil
	// The first group with such a limit patches the kernel's code: here, once, and not at each lonely box.
	h.tcp = writeAt(h.dirs["memory"], tcpLimit, "-1") == nil
	return nil
}

func (h *hybrid) kind() string { return "v1-hybrid" }

func (h *hybrid) create(id string, l runtime.Limits, b *Birth) (err error) {
	guest, agent := id+".g", id+".a"
	mem := h.dirs["memory"]
	if err = mkdirAt(mem, guest); err != nil {
		return err
	}
	if err = writeAt(mem, guest+"/memory.limit_in_bytes", itoa(GuestBudget)); err != nil {
		return err
	}
	groups := needed
	if l.ReadBPS > 0 || l.WriteBPS > 0 {
		if _, ok := h.dirs["blkio"]; !ok || h.device == "" {
			return wrap("limit io of", id, errors.ErrUnsupported)
		}
		groups = append(groups[:len(groups):len(groups)], "blkio")
	}
	for _, c := range groups {
		if err = mkdirAt(h.dirs[c], agent); err != nil {
			return err
		}
	}
	if err = h.setOwn(agent, l, true); err != nil {
		return err
	}
	if len(groups) > len(needed) {
		if err = h.setIO(agent, l); err != nil {
			return err
		}
	}
	for _, c := range groups {
		fd, err := openWrite(h.dirs[c], agent+"/tasks")
		if err != nil {
			return err
		}
		b.AgentTasks = append(b.AgentTasks, fd)
	}
	fd, err := openWrite(mem, guest+"/tasks")
	if err != nil {
		return err
	}
	b.Join = append(b.Join, fd)
	if b.Memory, err = openRead(mem, agent+"/memory.oom_control"); err != nil {
		return err
	}
	if b.Pids, err = openRead(h.dirs["pids"], agent+"/pids.events"); err != nil {
		return err
	}
	if err = mkdirAt(h.unified, id+"/agent"); err != nil {
		return err
	}
	b.Cgroup, err = openDir(h.unified, id)
	return err
}

func (h *hybrid) setLimits(id string, l runtime.Limits) error {
	agent := id + ".a"
	if err := h.setOwn(agent, l, false); err != nil {
		return err
	}
	return h.setIO(agent, l)
}

// setOwn sets the limits of the groups that every box has. A fresh group has none yet.
func (h *hybrid) setOwn(agent string, l runtime.Limits, fresh bool) error {
	if err := h.setMemory(agent, l.Memory, fresh); err != nil {
		return err
	}
	if err := writeAt(h.dirs["pids"], agent+"/pids.max", limit(l.Pids)); err != nil {
		return err
	}
	quota := int64(-1)
	if l.CPU > 0 {
		quota = cpuQuota(l.CPU)
	}
	return writeAt(h.dirs["cpu"], agent+"/cpu.cfs_quota_us", itoa(quota))
}

func (h *hybrid) unthrottle(id string) error {
	return writeAt(h.dirs["cpu"], id+".a/cpu.cfs_quota_us", "-1")
}

func (h *hybrid) setMemory(agent string, bytes int64, fresh bool) error {
	mem, value := h.dirs["memory"], "-1"
	if bytes > 0 {
		value = itoa(bytes)
	}
	files := []string{agent + "/memory.limit_in_bytes"}
	if h.memsw {
		files = append(files, agent+"/memory.memsw.limit_in_bytes")
	}
	// memsw may never be below the other: lowered after it, raised before it. A fresh group has both
	// unlimited; later limits are mostly raised, from what a spare or pooled box has.
	if !fresh && h.memsw {
		slices.Reverse(files)
	}
	err := writeAll(mem, files, value)
	if errors.Is(err, unix.EINVAL) && len(files) == 2 {
		slices.Reverse(files)
		err = writeAll(mem, files, value)
	}
	if err == nil && h.tcp {
		if bytes > 0 {
			value = itoa(max(bytes/tcpShare, minTCP))
		}
		err = writeAt(mem, agent+"/"+tcpLimit, value)
	}
	return err
}

// v1 counts the buffers of TCP and UDP sockets apart from all other memory, and
// only where they have a limit. Without one a box fills the machine's share of them. Over
// it sockets wait. It comes on top of the memory limit and is a fraction of it therefore.
const (
	tcpLimit = "memory.kmem.tcp.limit_in_bytes"
	tcpShare = 8
	minTCP   = 4 << 20
)

func writeAll(dir int, files []string, value string) error {
	for _, f := range files {
		if err := writeAt(dir, f, value); err != nil {
			return err
		}
	}
	return nil
}

func (h *hybrid) setIO(agent string, l runtime.Limits) error {
	blkio, ok := h.dirs["blkio"]
	if ok {
		ok = unix.Faccessat(blkio, agent, unix.F_OK, 0) == nil
	}
	if !ok {
		if l.ReadBPS > 0 || l.WriteBPS > 0 {
			return wrap("limit io of", agent, errors.ErrUnsupported)
		}
		return nil
	}
	for file, bps := range map[string]int64{"blkio.throttle.read_bps_device": l.ReadBPS, "blkio.throttle.write_bps_device": l.WriteBPS} {
		if err := writeAt(blkio, agent+"/"+file, h.device+" "+itoa(bps)); err != nil { // 0: no limit
			return err
		}
	}
	return nil
}

func limit(n int64) string {
	if n <= 0 {
		return "max"
	}
	return itoa(n)
}

// period of CPU bandwidth; quota below 1 ms is refused by the kernel.
const cpuPeriod = 100000

func cpuQuota(cores float64) int64 { return max(int64(math.Round(cores*cpuPeriod)), 1000) }

func (h *hybrid) remove(id string) error {
	var errs []error
	for c, fd := range h.dirs {
		errs = append(errs, rmdir(fd, id+".a"))
		if c == "memory" {
			errs = append(errs, rmdir(fd, id+".g"))
		}
	}
	return errors.Join(errs...)
}

func (h *hybrid) exists(id string) bool {
	for _, fd := range h.dirs {
		if unix.Faccessat(fd, id+".a", unix.F_OK, 0) == nil || unix.Faccessat(fd, id+".g", unix.F_OK, 0) == nil {
			return true
		}
	}
	return false
}

func (h *hybrid) list() ([]string, error) {
	var ids []string
	for _, fd := range h.dirs {
		names, err := subdirs(fd)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if id, ok := strings.CutSuffix(name, ".a"); ok {
				ids = append(ids, id)
			} else if id, ok := strings.CutSuffix(name, ".g"); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

func (h *hybrid) parking() ([]int, error) {
	var fds []int
	for _, c := range []string{"memory", "pids"} {
		if err := mkdirAt(h.dirs[c], parking); err != nil && !errors.Is(err, fs.ErrExist) {
			return fds, err
		}
		fd, err := openWrite(h.dirs[c], parking+"/tasks")
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func (h *hybrid) close() {
	for _, fd := range h.dirs {
		unix.Close(fd)
	}
}
