package doctor

import (
	"fmt"
	"path"
	"strings"
)

// existing gives the nearest directory above p that exists.
func (r *report) existing(p string) string {
	for p = path.Clean("/" + p); p != "/" && !r.exists(p); p = path.Dir(p) {
	}
	return p
}

func (r *report) storage() {
	r.group = "storage"
	if !hasLineEnd(r.read("/proc/filesystems"), "overlay") && !r.moduleKnown("overlay") {
		r.add("overlay", Fail, "the kernel does not know overlay", "modprobe overlay, and a line `overlay` in /etc/modules-load.d/dsec.conf")
	} else {
		r.add("overlay", OK, "known to the kernel", "")
	}
	dir := r.existing(r.h.DataDir)
	d, err := r.h.Disk(dir)
	if err != nil {
		r.add("data-dir", Fail, r.h.DataDir+": "+err.Error(), "give another one with --data-dir")
		return
	}
	where := fmt.Sprintf("%s is on %s (%s)", r.h.DataDir, d.Type, dir)
	switch {
	case d.ReadOnly:
		r.add("data-dir", Fail, where+", mounted read-only", "mount it read-write, or give another one with --data-dir")
	case d.Type == "overlay" || d.Type == "nfs" || d.Type == "fuse" || d.Type == "vfat" || d.Type == "9p":
		r.add("data-dir", Fail, where+", which cannot hold an overlay's upper directory", "put the data directory on ext4, xfs or btrfs with --data-dir (in a container: on a volume)")
	case d.Type == "tmpfs":
		r.add("data-dir", Warn, where+": everything in it counts as memory and is gone after a reboot", "put the data directory on ext4 or xfs with --data-dir")
	default:
		r.add("data-dir", OK, where, "")
	}
	r.oneFileSystem()
	r.space(d)
}

// oneFileSystem checks that nothing is mounted between the data directory and
// the boxes' upper and work directories: an overlay needs both on one.
func (r *report) oneFileSystem() {
	for _, m := range r.mounts() {
		rest, below := strings.CutPrefix(m.point, path.Clean(r.h.DataDir)+"/")
		if below && (rest == "boxes" || strings.HasPrefix(rest, "boxes/")) && m.fstype != "overlay" {
			r.add("upper-work", Warn, m.point+" is a mount of its own ("+m.fstype+")", "an overlay's upper and work directories must lie on one file system: unmount it, or move the whole data directory there")
			return
		}
	}
	r.add("upper-work", OK, "a box's upper and work directories share one parent in the data directory", "")
}

func (r *report) space(d Disk) {
	found := fmt.Sprintf("%s free of %s", size(d.Free), size(d.Size))
	remedy := "remove templates that are not used (`dsec template ls`, `dsec template rm`), or use a larger disk"
	switch {
	case d.Free < 1<<30:
		r.add("disk", Fail, found, remedy)
	case d.Free < 10<<30:
		r.add("disk", Warn, found, remedy)
	default:
		r.add("disk", OK, found, "")
	}
	if d.Inodes == 0 {
		r.add("inodes", OK, "the file system has no fixed number", "")
		return
	}
	found = fmt.Sprintf("%d free of %d", d.InodesFree, d.Inodes)
	if d.InodesFree < 100_000 || d.InodesFree < d.Inodes/50 {
		r.add("inodes", Warn, found, "remove files (`du --inodes -x / | sort -n | tail`), or make the file system with more inodes")
	} else {
		r.add("inodes", OK, found, "")
	}
}

func (r *report) moduleKnown(name string) bool {
	dep := r.read("/lib/modules/" + r.h.Kernel() + "/modules.dep")
	return strings.Contains(dep, "/"+name+".ko") || strings.Contains(r.read("/lib/modules/"+r.h.Kernel()+"/modules.builtin"), "/"+name+".ko")
}

func hasLineEnd(text, word string) bool {
	for _, l := range strings.Split(text, "\n") {
		f := strings.Fields(l)
		if len(f) > 0 && f[len(f)-1] == word {
			return true
		}
	}
	return false
}

// size writes bytes for people.
func size(n uint64) string {
	f := float64(n)
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if f < 1024 {
			return fmt.Sprintf("%.4g %s", f, u)
		}
		f /= 1024
	}
	return fmt.Sprintf("%.4g TiB", f)
}
