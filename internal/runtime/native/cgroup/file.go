package cgroup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "cgroup " + op, Path: path, Err: err}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func mkdirAt(dir int, rel string) error { return wrap("mkdir", rel, unix.Mkdirat(dir, rel, 0o755)) }

func openDir(dir int, rel string) (int, error) {
	fd, err := unix.Openat(dir, rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return fd, wrap("open", rel, err)
}

func openWrite(dir int, rel string) (int, error) {
	for {
		fd, err := unix.Openat(dir, rel, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, wrap("open", rel, err)
		}
	}
}

func openRead(dir int, rel string) (int, error) {
	fd, err := unix.Openat(dir, rel, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd, wrap("open", rel, err)
}

// writeAt writes a control file. Some of them (memory.limit_in_bytes) give
// EINTR under the preemption signals of the Go run time.
func writeAt(dir int, rel, value string) error {
	fd, err := openWrite(dir, rel)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Write(fd, []byte(value))
		if !errors.Is(err, unix.EINTR) {
			return wrap("write "+value+" to", rel, err)
		}
	}
}

func readAt(dir int, rel string) ([]byte, error) {
	fd, err := unix.Openat(dir, rel, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, wrap("open", rel, err)
	}
	defer unix.Close(fd)
	var out []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, wrap("read", rel, err)
		}
		if n == 0 {
			return out, nil
		}
		out = append(out, buf[:n]...)
	}
}

// readInt reads a file of one number; "max" is 0, which is "no limit" here.
func readInt(dir int, rel string) (int64, error) {
	b, err := readAt(dir, rel)
	if err != nil {
		return 0, err
	}
	s := strings.TrimSpace(string(b))
	if s == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return int64(min(n, 1<<63-1)), err
}

// keyed finds "key value" in a flat keyed file.
func keyed(b []byte, key string) int64 {
	for line := range bytes.Lines(b) {
		if k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" ")); ok && string(k) == key {
			n, _ := strconv.ParseInt(string(v), 10, 64)
			return n
		}
	}
	return 0
}

func subdirs(dir int) ([]string, error) {
	fd, err := openDir(dir, ".")
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "cgroup")
	defer f.Close()
	entries, err := f.ReadDir(-1)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// rmdir removes one group; that there is none is fine.
func rmdir(dir int, rel string) error {
	err := unix.Unlinkat(dir, rel, unix.AT_REMOVEDIR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return wrap("rmdir", rel, err)
}
