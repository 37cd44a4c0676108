package layer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	erofs "github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"
)

// errUnfit says that a tree is kept as a directory: the image writer could not
// show it truly, or at many times its size.
var errUnfit = errors.New("not fit for an EROFS image")

// maxLinkWaste is how many bytes of second links an image may repeat.
const maxLinkWaste = 16 << 20

// packEROFS writes the tree below root as an image and computes the tree's
// digest in the same pass.
func packEROFS(ctx context.Context, root, image, tmp string) (treeSum, error) {
	dir, err := os.Open(root)
	if err != nil {
		return treeSum{}, err
	}
	defer dir.Close()
	f, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return treeSum{}, err
	}
	defer f.Close()
	p := packer{w: erofs.Create(f, erofs.WithTempDir(tmp), erofs.WithBuildTime(0, 0)), seen: map[uint64]bool{}}
	sum, err := sumTree(ctx, dir, p.add)
	if err != nil {
		return sum, err
	}
	if err := p.w.Close(); err != nil {
		return sum, err
	}
	st, err := f.Stat()
	if err != nil {
		return sum, err
	}
	sum.imageSize = st.Size()
	return sum, f.Close()
}

type packer struct {
	w     *erofs.Writer
	seen  map[uint64]bool // inodes with several links
	waste int64
}

func (p *packer) add(e *entry, content io.Reader) error {
	name := "/" + e.path
	var err error
	switch e.kind() {
	case unix.S_IFDIR:
		err = p.w.Mkdir(name, 0o755)
	case unix.S_IFLNK:
		err = p.w.Symlink(e.target, name)
	case unix.S_IFREG:
		err = p.file(name, e, content)
	default:
		err = p.w.Mknod(name, uint16(e.st.Mode), 0)
	}
	if err != nil {
		return err
	}
	return p.attributes(name, e)
}

func (p *packer) file(name string, e *entry, content io.Reader) error {
	if e.st.Nlink > 1 {
		if p.seen[e.st.Ino] {
			p.waste += e.st.Size
		}
		p.seen[e.st.Ino] = true
		if p.waste > maxLinkWaste {
			return fmt.Errorf("%w: hard links would be stored again and again", errUnfit)
		}
	}
	f, err := p.w.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	return f.Close()
}

func (p *packer) attributes(name string, e *entry) error {
	if e.kind() != unix.S_IFLNK {
		if err := p.w.Chmod(name, goMode(e.st.Mode)); err != nil {
			return err
		}
	}
	if err := p.w.Chown(name, int(e.st.Uid), int(e.st.Gid)); err != nil {
		return err
	}
	t := time.Unix(mtimeOf(&e.st), 0)
	if err := p.w.Chtimes(name, t, t); err != nil {
		return err
	}
	for _, x := range e.xattrs {
		if x.name == "system.posix_acl_access" || x.name == "system.posix_acl_default" {
			return fmt.Errorf("%w: it has access control lists", errUnfit)
		}
		if err := p.w.Setxattr(name, x.name, x.value); err != nil {
			return err
		}
	}
	return nil
}

func goMode(m uint32) fs.FileMode {
	out := fs.FileMode(m & 0o777)
	if m&unix.S_ISUID != 0 {
		out |= fs.ModeSetuid
	}
	if m&unix.S_ISGID != 0 {
		out |= fs.ModeSetgid
	}
	if m&unix.S_ISVTX != 0 {
		out |= fs.ModeSticky
	}
	return out
}

// MountEROFS gives the root of an image's detached, read-only mount: it is in no
// mount table and ends with the descriptor. Only for images that this package
// made: the kernel's parser is no place for foreign ones.
func MountEROFS(image string) (*os.File, error) {
	fsfd, err := unix.Fsopen("erofs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen erofs: %w", err)
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigSetString(fsfd, "source", image); err != nil {
		return nil, fmt.Errorf("erofs source: %w", err)
	}
	if err := unix.FsconfigSetFlag(fsfd, "ro"); err != nil {
		return nil, fmt.Errorf("erofs ro: %w", err)
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return nil, fmt.Errorf("mount erofs image: %w", err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsmount erofs: %w", err)
	}
	return os.NewFile(uintptr(fd), image), nil
}

// ProbeEROFS makes an image in dir, mounts it and reads it back: nil when this
// kernel, with this file system below, can keep layers as images.
func ProbeEROFS(dir string) error {
	f, err := os.CreateTemp(dir, "probe-*.erofs")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	want := bytes.Repeat([]byte("dsec"), 2048)
	w := erofs.Create(f, erofs.WithTempDir(dir))
	file, err := w.Create("/probe")
	if err != nil {
		return err
	}
	_, err = file.Write(want)
	if err := errors.Join(err, file.Close(), w.Close()); err != nil {
		return err
	}
	root, err := MountEROFS(f.Name())
	if err != nil {
		return err
	}
	defer root.Close()
	got, err := os.ReadFile(filepath.Join(fdPath(int(root.Fd())), "probe"))
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the image reads back wrong")
	}
	return err
}
