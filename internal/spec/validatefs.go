package spec

import (
	"fmt"
	"path"
	"strings"
)

// kernelDirs are made by the runtime in every box.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// systemDirs hold the template's own programs: an empty writable directory or a
// data mount over one of them leaves a box that can run nothing.
var systemDirs = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/etc", "/boot", "/run"}

// alwaysTmpfs are writable in every box; declaring them changes nothing.
func alwaysTmpfs(p string) bool { return p == "/tmp" || p == "/dev/shm" }

func (c *checker) fs(f *FS) {
	var taken []string
	for i, dir := range f.WritableDirs {
		at := fmt.Sprintf("fs.writable_dirs[%d]", i)
		if c.boxPath(at, dir) && c.free(at, dir, taken) {
			taken = append(taken, dir)
		}
	}
	within(c, "fs.writable_size_limit", f.WritableSizeLimit, MinWritable, MaxWritable)
	within(c, "fs.tmp_size_limit", f.TmpSizeLimit, MinWritable, 64*TiB)
	c.oneOf("fs.writable_store", f.WritableStore, stores)
	for i, m := range f.Mounts {
		at := fmt.Sprintf("fs.mounts[%d]", i)
		if !clean(m.Source) {
			c.bad(at+".source", absolute(m.Source), "%q is not an absolute, clean path", m.Source)
		}
		if alwaysTmpfs(m.Target) {
			c.bad(at+".target", "choose another place, like /data", "%s is a tmpfs in every box", m.Target)
		} else if c.boxPath(at+".target", m.Target) && c.free(at+".target", m.Target, taken) {
			taken = append(taken, m.Target)
		}
	}
}

// boxPath checks a place in the box.
func (c *checker) boxPath(at, p string) bool {
	if !clean(p) {
		c.bad(at, absolute(p), "%q is not an absolute, clean path", p)
		return false
	}
	if p == "/" {
		c.bad(at, "write rootfs: writable for a writable root", "/ is the whole root")
		return false
	}
	if alwaysTmpfs(p) {
		return true
	}
	for _, d := range kernelDirs {
		if below(p, d) {
			c.bad(at, "choose a place outside /proc, /sys and /dev", "%s belongs to the kernel's file systems", p)
			return false
		}
	}
	for _, d := range systemDirs {
		if p == d {
			c.bad(at, "name a directory below it, or write rootfs: writable", "%s holds the template's own files and would be hidden", p)
			return false
		}
	}
	return true
}

// free refuses a path that lies in, holds, or repeats an earlier one.
func (c *checker) free(at, p string, taken []string) bool {
	for _, t := range taken {
		if p == t {
			c.bad(at, "keep one", "%s is given twice", p)
			return false
		}
		if below(p, t) || below(t, p) {
			c.bad(at, "keep the outer one only", "%s and %s overlap", p, t)
			return false
		}
	}
	return true
}

func absolute(p string) string {
	if p == "" {
		return "give an absolute path like /workspace"
	}
	if strings.ContainsAny(p, "\x00\n") || len(p) > 1000 {
		return "use a shorter path of plain characters"
	}
	return "write " + path.Clean("/"+p)
}
