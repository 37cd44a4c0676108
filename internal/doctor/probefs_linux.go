package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"
)

// overlay mounts a lower, an upper and a work directory of the data directory,
// and checks that the result is writable: with wrong parameters the kernel mounts
// it read-only and says so only in its log.
func (p *prober) overlay(context.Context) (string, error) {
	dir, remove, err := p.overlayDirs()
	if err != nil {
		return "", err
	}
	defer remove()
	return "overlay mounts writable on the data directory", mountOverlay(dir, func(fs int) error {
		return unix.FsconfigSetString(fs, "lowerdir", filepath.Join(dir, "l"))
	})
}

// overlayDetached does the same with a lower layer that is mounted nowhere.
func (p *prober) overlayDetached(context.Context) (string, error) {
	dir, remove, err := p.overlayDirs()
	if err != nil {
		return "", err
	}
	defer remove()
	tree, err := unix.OpenTree(unix.AT_FDCWD, filepath.Join(dir, "l"), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree) // the layer lives as long as this descriptor
	return "overlay takes layers that are mounted nowhere", mountOverlay(dir, func(fs int) error {
		return unix.FsconfigSetFd(fs, "lowerdir+", tree)
	})
}

func (p *prober) overlayDirs() (string, func(), error) {
	dir, remove, err := p.scratch()
	if err != nil {
		return "", nil, err
	}
	for _, d := range []string{"l", "u", "w"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			remove()
			return "", nil, err
		}
	}
	return dir, remove, nil
}

func mountOverlay(dir string, lower func(fs int) error) error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fs)
	if err := lower(fs); err != nil {
		return fmt.Errorf("lower layer: %w", err)
	}
	for _, o := range [][2]string{{"upperdir", filepath.Join(dir, "u")}, {"workdir", filepath.Join(dir, "w")}, {"redirect_dir", "on"}, {"index", "off"}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return fmt.Errorf("option %s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigSetFlag(fs, "volatile"); err != nil {
		return fmt.Errorf("option volatile: %w", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("overlay on %s: %w", dir, err)
	}
	m, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("fsmount: %w", err)
	}
	defer unix.Close(m)
	var st unix.Statfs_t
	if err := unix.Fstatfs(m, &st); err != nil {
		return err
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("the overlay came up read-only: its work directory is not usable")
	}
	return nil
}

// erofs mounts a small image of its own making, straight from the file.
func (p *prober) erofs(context.Context) (string, error) {
	dir, remove, err := p.scratch()
	if err != nil {
		return "", err
	}
	defer remove()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(tree, "file"), []byte("x"), 0o644); err != nil {
		return "", err
	}
	img := filepath.Join(dir, "image.erofs")
	if err := makeImage(img, tree); err != nil {
		return "", fmt.Errorf("an image cannot be made: %w", err)
	}
	fs, err := unix.Fsopen("erofs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("the kernel does not know erofs: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "source", img); err != nil {
		return "", err
	}
	if err := unix.FsconfigSetFlag(fs, "ro"); err != nil {
		return "", err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return "", fmt.Errorf("an image file cannot be mounted without a loop device: %w", err)
	}
	m, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return "", fmt.Errorf("fsmount: %w", err)
	}
	defer unix.Close(m)
	f, err := unix.Openat(m, "file", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("the mounted image cannot be read: %w", err)
	}
	return "image files mount without a loop device", unix.Close(f)
}

func makeImage(img, tree string) error {
	f, err := os.Create(img)
	if err != nil {
		return err
	}
	defer f.Close()
	w := erofs.Create(f)
	if err := w.CopyFrom(os.DirFS(tree)); err != nil {
		return err
	}
	return w.Close()
}
