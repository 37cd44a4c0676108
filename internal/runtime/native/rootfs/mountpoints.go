package rootfs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// A read-only root cannot get a mount point after it was built. Where a
// template has no directory at a path that is asked for, one more layer with
// the missing directories goes on top. It is made once per template and set of
// paths and kept.

// point is a mount point to be.
type point struct {
	path string
	file bool // the mount is a file
}

// missing gives the paths of s that root has not. What no mount can be on is the fault of who asked for it: a directory and a
// file cannot be mounted on one another.
func (b *Builder) missing(root int, s *Spec) ([]point, error) {
	var points []point
	for _, d := range s.Dirs {
		points = append(points, point{d.Path, false})
	}
	for _, m := range s.Data {
		st, err := os.Lstat(m.Source)
		points = append(points, point{m.Target, err == nil && st.Mode().IsRegular()})
	}
	if err := conflict(points); err != nil {
		return nil, err
	}
	var missing []point
	for _, p := range points {
		fd, err := openIn(root, p.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, p)
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
			return nil, badPoint(p.path, err)
		case err != nil:
			return nil, pathErr("look up mount point", p.path, err)
		default:
			err := fits(fd, p)
			unix.Close(fd)
			if err != nil {
				return nil, err
			}
		}
	}
	return missing, nil
}

// conflict finds a file among the points on which, or below which, another is.
func conflict(points []point) error {
	for i, p := range points {
		for j, q := range points {
			if i != j && p.file && (q.path == p.path && !q.file || strings.HasPrefix(q.path, p.path+"/")) {
				return badPoint(q.path, fmt.Errorf("a file is mounted on %s: %w", p.path, unix.ENOTDIR))
			}
		}
	}
	return nil
}

// fits tells whether p can be mounted on what is there.
func fits(fd int, p point) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return pathErr("stat mount point", p.path, err)
	}
	switch dir := st.Mode&unix.S_IFMT == unix.S_IFDIR; {
	case dir && p.file:
		return badPoint(p.path, fmt.Errorf("a file is to be mounted on it: %w", unix.EISDIR))
	case !dir && !p.file:
		return badPoint(p.path, unix.ENOTDIR)
	}
	return nil
}

// badPoint is the fault of who asked for the path.
func badPoint(path string, err error) error {
	return errdefs.Userf(errdefs.InvalidArgument, "path "+path, "name a path that is of the mount's kind in the template and whose parents are real directories, or one that is absent", "no mount can be there: %w", err)
}

func openIn(root int, name string) (int, error) {
	return unix.Openat2(root, strings.TrimLeft(name, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// withMountPoints replaces root by one with the missing mount points.
func (b *Builder) withMountPoints(root int, s *Spec, missing []point) (int, error) {
	layer, err := b.mountPointLayer(root, s, missing)
	if err != nil {
		return root, err
	}
	more := *s
	more.Root.Layers = append([]runtime.Layer{layer}, s.Root.Layers...)
	fresh, err := b.rung.root(b, &more)
	if err != nil {
		return root, err
	}
	unix.Close(root)
	return fresh, nil
}

func (b *Builder) mountPointLayer(root int, s *Spec, missing []point) (runtime.Layer, error) {
	h := sha256.New()
	for _, l := range s.Root.Layers {
		h.Write([]byte(l.Path + "\x00"))
	}
	slices.SortFunc(missing, func(a, b point) int { return strings.Compare(a.path, b.path) })
	for _, p := range missing {
		h.Write([]byte("\x01" + p.path))
		if p.file {
			h.Write([]byte{2})
		}
	}
	dir := filepath.Join(b.o.Cache, hex.EncodeToString(h.Sum(nil)[:16]))
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := os.Stat(dir); err == nil {
		return runtime.Layer{Path: dir}, nil
	}
	tmp, err := os.MkdirTemp(b.o.Cache, ".new-")
	if err != nil {
		return runtime.Layer{}, err
	}
	defer os.RemoveAll(tmp)
	if err := errors.Join(os.Chmod(tmp, 0o755), os.Lchown(tmp, 0, 0)); err != nil {
		return runtime.Layer{}, err
	}
	for _, p := range missing {
		if err := makePoint(root, tmp, p, s.Base); err != nil {
			return runtime.Layer{}, err
		}
	}
	return runtime.Layer{Path: dir}, os.Rename(tmp, dir)
}

// makePoint makes one mount point in the layer. A directory that the root has
// keeps its owner and mode: the top layer's are what a box sees.
func makePoint(root int, layer string, p point, base int) error {
	elems := strings.Split(strings.Trim(path.Clean(p.path), "/"), "/")
	rel := ""
	for i, elem := range elems {
		rel = path.Join(rel, elem)
		host := filepath.Join(layer, rel)
		last := i == len(elems)-1
		// This thread has the box's file-system ids; the layer has the container's.
		if last && p.file {
			return errors.Join(os.WriteFile(host, nil, 0o644), os.Lchown(host, 0, 0))
		}
		if err := os.Mkdir(host, 0o755); errors.Is(err, fs.ErrExist) {
			continue
		} else if err = errors.Join(err, os.Lchown(host, 0, 0)); err != nil {
			return err
		}
		if err := copyOwner(root, rel, host, base); err != nil {
			return err
		}
	}
	return nil
}

func copyOwner(root int, rel, host string, base int) error {
	var st unix.Stat_t
	err := unix.Fstatat(root, rel, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	} else if err != nil {
		return pathErr("stat", rel, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return badPoint("/"+rel, unix.ENOTDIR) // a file, or a link to nowhere
	}
	if err := os.Chown(host, int(st.Uid)-base, int(st.Gid)-base); err != nil {
		return err
	}
	return unix.Chmod(host, st.Mode&0o7777)
}
