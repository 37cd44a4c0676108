package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The images are ext4 without a journal: they die with their box, so there is
// nothing to recover, and an overlay on them is faster than on the host's disk.

const (
	loFlagsAutoclear = 4
	loFlagsDirectIO  = 16
	// minImage is what ext4 needs to be of use.
	minImage = 4 << 20
)

func probeLoop() error {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return errors.New("loop images: mkfs.ext4 is missing (install e2fsprogs)")
	}
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("loop images: %w", err)
	}
	return f.Close()
}

// makeGolden makes the empty image of a size that the others are copies of.
func makeGolden(path string, size int64) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	err = f.Truncate(size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	out, err := exec.Command("mkfs.ext4", "-q", "-F", "-O", "^has_journal,^resize_inode", "-m", "0", "-b", "4096", "-I", "256",
		"-E", "nodiscard,lazy_itable_init=1,root_owner=0:0", tmp).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.Rename(tmp, path)
}

// copySparse copies the parts of a file that hold data.
func copySparse(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(dst.Truncate(st.Size()), copyData(dst, src))
	if err = errors.Join(err, dst.Close()); err != nil {
		os.Remove(to)
	}
	return err
}

func copyData(dst, src *os.File) error {
	for at := int64(0); ; {
		start, err := src.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		} else if err != nil {
			return err
		}
		end, err := src.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := src.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := dst.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(dst, src, end-start); err != nil { // copy_file_range
			return err
		}
		at = end
	}
}

// mountImage mounts an image as a detached mount. The loop device frees
// itself with the last user of the mount.
func mountImage(path string) (fd int, device string, err error) {
	image, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return -1, "", err
	}
	defer image.Close()
	dev, err := attachLoop(image)
	if err != nil {
		return -1, "", fmt.Errorf("loop device for %s: %w", path, err)
	}
	defer dev.Close()
	ctx, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, "", err
	}
	defer unix.Close(ctx)
	err = errors.Join(unix.FsconfigSetString(ctx, "source", dev.Name()), unix.FsconfigSetFlag(ctx, "noinit_itable"))
	if err == nil {
		err = unix.FsconfigCreate(ctx)
	}
	if err != nil {
		return -1, "", fmt.Errorf("mount %s: %w", path, err)
	}
	fd, err = unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME)
	return fd, filepath.Base(dev.Name()), err
}

func attachLoop(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 64 { // others look for a free device at the same time
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		c := unix.LoopConfig{Fd: uint32(image.Fd()), Size: 4096, Info: unix.LoopInfo64{Flags: loFlagsAutoclear | loFlagsDirectIO}}
		copy(c.Info.File_name[:len(c.Info.File_name)-1], image.Name())
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
		if errors.Is(err, unix.EINVAL) { // the disk below cannot do direct I/O in these blocks
			c.Info.Flags &^= loFlagsDirectIO
			err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
		}
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, unix.EBUSY
}

// loopOf gives the loop device whose backing file is path, or "". A known
// device (else "") spares looking at all of them.
func loopOf(path, known string) (string, error) {
	pattern := "/sys/block/loop*/loop/backing_file"
	if known != "" {
		pattern = "/sys/block/" + known + "/loop/backing_file"
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // freed meanwhile
		}
		if strings.TrimSuffix(strings.TrimSpace(string(raw)), " (deleted)") == path {
			return strings.Split(f, "/")[3], nil
		}
	}
	return "", nil
}

// freePatience: an unmount first writes what the box had not yet written, which
// may be as much as its memory holds.
const freePatience = 30 * time.Second

// removeImage removes an image and waits until its loop device is free: the
// kernel unmounts a dead box's mounts a moment after the box.
func removeImage(path, device string) error {
	deadline := time.Now().Add(freePatience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		dev, err := loopOf(path, device)
		if err != nil {
			return err
		}
		if dev == "" {
			break
		}
		if time.Now().After(deadline) {
			return &fs.PathError{Op: "free " + dev + " of", Path: path, Err: unix.EBUSY}
		}
		time.Sleep(wait)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
