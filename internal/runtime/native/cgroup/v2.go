package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// v2 has everything in the one hierarchy.
type v2 struct {
	root   int // Node.unified; not owned
	device string
	enable string // what is written to cgroup.subtree_control
	io     bool
}

func (n *Node) openV2(o Options) error {
	v := &v2{device: o.Device}
	n.layout = v
	have, err := readAt(unix.AT_FDCWD, filepath.Join(o.Mount, "cgroup.controllers"))
	if err != nil {
		return err
	}
	controllers := strings.Fields(string(have))
	var enable []string
	for _, c := range append(needed[:len(needed):len(needed)], "io") {
		found := false
		for _, h := range controllers {
			found = found || h == c
		}
		if !found && c != "io" {
			return fmt.Errorf("the cgroup controller %s is not available in %s: enable it (cgroup_enable=%s on the kernel's command line, or delegate it)", c, o.Mount, c)
		}
		if found {
			enable = append(enable, "+"+c)
			v.io = v.io || c == "io"
		}
	}
	v.enable = strings.Join(enable, " ")
	if err := writeAt(unix.AT_FDCWD, filepath.Join(o.Mount, "cgroup.subtree_control"), v.enable); err != nil {
		return err
	}
	path := filepath.Join(o.Mount, n.name)
	if err := unix.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return wrap("mkdir", path, err)
	}
	n.paths = append(n.paths, path)
	if n.unified, err = openDir(unix.AT_FDCWD, path); err != nil {
		return err
	}
	v.root = n.unified
	return writeAt(v.root, "cgroup.subtree_control", v.enable)
}

func (v *v2) kind() string { return "v2" }

func (v *v2) create(id string, l runtime.Limits, b *Birth) (err error) {
	if err = writeAt(v.root, id+"/cgroup.subtree_control", v.enable); err != nil {
		return err
	}
	for _, group := range []string{id + "/guest", id + "/agent"} {
		if err = mkdirAt(v.root, group); err != nil {
			return err
		}
	}
	if err = writeAt(v.root, id+"/guest/memory.max", itoa(GuestBudget)); err != nil {
		return err
	}
	if err = v.setLimits(id, l); err != nil {
		return err
	}
	if b.Memory, err = openRead(v.root, id+"/agent/memory.events"); err != nil {
		return err
	}
	if b.Pids, err = openRead(v.root, id+"/agent/pids.events"); err != nil {
		return err
	}
	b.Cgroup, err = openDir(v.root, id+"/guest")
	return err
}

func (v *v2) setLimits(id string, l runtime.Limits) error {
	agent := id + "/agent/"
	cpu := "max"
	if l.CPU > 0 {
		cpu = itoa(cpuQuota(l.CPU))
	}
	for _, f := range [][2]string{
		{"memory.max", limit(l.Memory)},
		{"pids.max", limit(l.Pids)},
		{"cpu.max", cpu + " " + itoa(cpuPeriod)},
	} {
		if err := writeAt(v.root, agent+f[0], f[1]); err != nil {
			return err
		}
	}
	// No swap: a promise of memory is a promise of memory. The file is absent without swap support.
	if err := writeAt(v.root, agent+"memory.swap.max", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !v.io || v.device == "" {
		if l.ReadBPS > 0 || l.WriteBPS > 0 {
			return wrap("limit io of", id, errors.ErrUnsupported)
		}
		return nil
	}
	err := writeAt(v.root, agent+"io.max", v.device+" rbps="+limit(l.ReadBPS)+" wbps="+limit(l.WriteBPS))
	if l.ReadBPS == 0 && l.WriteBPS == 0 && errors.Is(err, unix.ENODEV) {
		return nil // a device without a queue has no limit to lift
	}
	return err
}

func (v *v2) unthrottle(id string) error { return writeAt(v.root, id+"/agent/cpu.max", "max") }

func (v *v2) usage(id string, u *runtime.Usage) error {
	agent := id + "/agent/"
	total, err := readInt(v.root, agent+"memory.current")
	if err != nil {
		return err
	}
	stat, err := readAt(v.root, agent+"memory.stat")
	if err != nil {
		return err
	}
	u.Memory = max(total-keyed(stat, "inactive_file"), 0)
	// memory.peak came with 5.19; the current value is the best there is before.
	if u.MemoryPeak, err = readInt(v.root, agent+"memory.peak"); err != nil {
		u.MemoryPeak = total
	}
	if u.MemoryLimit, err = readInt(v.root, agent+"memory.max"); err != nil {
		return err
	}
	if u.Pids, err = readInt(v.root, agent+"pids.current"); err != nil {
		return err
	}
	if u.OOMKills, err = v.oomKills(id); err != nil {
		return err
	}
	if b, err := readAt(v.root, agent+"io.stat"); err == nil {
		u.ReadBytes, u.WriteBytes = ioStat(b)
	}
	return nil
}

// ioStat sums rbytes= and wbytes= over the devices.
func ioStat(b []byte) (read, write int64) {
	for f := range bytes.FieldsSeq(b) {
		k, val, _ := strings.Cut(string(f), "=")
		n, _ := strconv.ParseInt(val, 10, 64)
		switch k {
		case "rbytes":
			read += n
		case "wbytes":
			write += n
		}
	}
	return read, write
}

func (v *v2) oomKills(id string) (int64, error) {
	b, err := readAt(v.root, id+"/agent/memory.events")
	if err != nil {
		return 0, err
	}
	return keyed(b, "oom_kill"), nil
}

func (v *v2) peak(id string) (int64, error) {
	return readInt(v.root, id+"/agent/memory.peak")
}

func (v *v2) remove(id string) error {
	return rmdir(v.root, id+"/guest")
}

func (v *v2) list() ([]string, error) { return nil, nil }
func (v *v2) exists(string) bool      { return false }
func (v *v2) parking() ([]int, error) { return nil, nil }
func (v *v2) close()                  {}
