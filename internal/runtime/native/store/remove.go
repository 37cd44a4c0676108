package store

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// removeTree removes a directory that an agent has filled. It goes neither deep
// in the stack nor in open descriptors, however deep the tree is: directories
// are moved up to the top before they are emptied.
func removeTree(dir string) error {
	top, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "remove", Path: dir, Err: err}
	}
	defer unix.Close(top)
	for next := 0; ; {
		names, err := entries(top, ".")
		if err != nil {
			return err
		}
		if len(names) == 0 {
			break
		}
		for _, name := range names {
			if err := removeEntry(top, name, &next); err != nil {
				return &fs.PathError{Op: "remove", Path: filepath.Join(dir, name), Err: err}
			}
		}
	}
	return os.Remove(dir)
}

// removeEntry removes one entry of top; subdirectories of a directory become
// entries of top.
func removeEntry(top int, name string, next *int) error {
	err := unix.Unlinkat(top, name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if err = unix.Unlinkat(top, name, unix.AT_REMOVEDIR); !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	dir, err := unix.Openat(top, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	for {
		names, err := entries(dir, ".")
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
		}
		for _, sub := range names {
			if err := removeOrLift(dir, sub, top, next); err != nil {
				return err
			}
		}
	}
}

// removeOrLift removes a file, and makes a directory an entry of top.
func removeOrLift(dir int, name string, top int, next *int) error {
	err := unix.Unlinkat(dir, name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	for {
		*next++
		err := unix.Renameat2(dir, name, top, "_"+strconv.Itoa(*next), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
}

// batch is how many names are read at a time: an agent decides how many there are.
const batch = 4096

// entries gives some of a directory's names; none when there are no more.
func entries(at int, name string) ([]string, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(batch)
	if err == io.EOF {
		err = nil
	}
	return names, err
}
