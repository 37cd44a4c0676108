package files

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// maxWatches bounds the directories of one recursive watch.
const maxWatches = 1 << 14

const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM |
	unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watch sends what happens in a directory, and with recursive below it, until
// the client goes or the directory does. What the client does not take waits in the kernel's
// bounded queue; when that overflows, the client is told to list again.
func (o *op) watch() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return watchError(o.req.Path, err)
	}
	w := &watcher{o: o, fd: fd, file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int]string{}}
	defer w.file.Close()
	if err := w.add("", false); err != nil {
		return err
	}
	if err := o.s.SendMessage(&guestproto.Reply{}, false); err != nil {
		return err
	}
	// The client sends nothing: that Recv ends means that it has gone.
	gone := make(chan struct{})
	go func() {
		for {
			if _, err := o.s.Recv(); err != nil {
				break
			}
		}
		w.file.Close()
		close(gone)
	}()
	// Ending the stream ends the Recv above too.
	if err = w.run(); err == io.EOF || errors.Is(err, os.ErrClosed) {
		_ = o.s.CloseSend() // a client that has gone needs no end
		_ = o.s.Close()
	} else {
		o.s.Reset(wireError("path "+o.req.Path, err))
	}
	<-gone
	return nil
}

// watchError tells the limit of watches apart from a full disk.
func watchError(path string, err error) error {
	switch err {
	case unix.ENOSPC, unix.EMFILE:
		return &guestproto.WireError{Class: "limit", Reason: "rate_limited", Object: "path " + path,
			Message: "too many directories are being watched", Remedy: "watch a smaller tree, or end other watches"}
	}
	return at(path, err)
}

type watcher struct {
	o    *op
	fd   int
	file *os.File
	dirs map[int]string // watch descriptor → path from the watched directory
	last guestproto.WatchEvent
}

// add watches a directory, and below it if the request says so. Where report is
// set, what is found is told: it came to be before the watch did.
func (w *watcher) add(rel string, report bool) error {
	if err := w.one(rel); err != nil {
		return watchError(join(w.o.req.Path, rel), err)
	}
	if !w.o.req.Recursive {
		return nil
	}
	walk, err := w.o.walk(join(w.o.path, rel))
	if err != nil {
		return at(join(w.o.req.Path, rel), err)
	}
	defer walk.close()
	for {
		e, err := walk.next()
		if e == nil || err != nil {
			return err
		}
		path := e.rel
		if rel != "" {
			path = rel + "/" + e.rel
		}
		if report {
			if err := w.send("create", path); err != nil {
				return err
			}
		}
		if !isDir(&e.st) {
			continue
		}
		switch err := w.one(path); err {
		case nil, unix.EACCES, unix.ENOENT, unix.ENOTDIR:
		default:
			return watchError(join(w.o.req.Path, path), err)
		}
		switch err := walk.enter(); err {
		case nil, unix.EACCES, unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		default:
			return at(join(w.o.req.Path, path), err)
		}
	}
}

func (w *watcher) one(rel string) error {
	if len(w.dirs) >= maxWatches {
		return unix.EMFILE
	}
	mask := uint32(watchMask)
	if rel != "" {
		mask |= unix.IN_DONT_FOLLOW
	}
	return w.o.as(func() error {
		wd, err := unix.InotifyAddWatch(w.fd, join(w.o.path, rel), mask)
		if err == nil {
			w.dirs[wd] = rel
		}
		return err
	})
}

// drop ends the watches of a directory that was moved away, and of all below it.
func (w *watcher) drop(rel string) {
	for wd, dir := range w.dirs {
		if dir == rel || strings.HasPrefix(dir, rel+"/") {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // gone already, then
			delete(w.dirs, wd)
		}
	}
}

// run passes events on until the directory is gone (io.EOF) or the client is.
func (w *watcher) run() error {
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return err
		}
		w.last = guestproto.WatchEvent{} // events of one batch are merged, not across
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd := int(int32(binary.NativeEndian.Uint32(b)))
			mask := binary.NativeEndian.Uint32(b[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			name, _, _ := strings.Cut(string(b[unix.SizeofInotifyEvent:size]), "\x00")
			b = b[size:]
			if err := w.event(wd, mask, name); err != nil {
				return err
			}
		}
	}
}

func (w *watcher) event(wd int, mask uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		// Directories may have been made among what was lost.
		clear(w.dirs)
		if err := w.o.s.SendMessage(&guestproto.WatchEvent{Kind: "overflow", Overflow: true}, false); err != nil {
			return err
		}
		return w.add("", false)
	}
	dir, ok := w.dirs[wd]
	if !ok {
		return nil
	}
	path := name
	if dir != "" && name != "" {
		path = dir + "/" + name
	}
	if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0 {
		if mask&unix.IN_IGNORED != 0 {
			delete(w.dirs, wd)
		}
		if dir != "" {
			return nil // its parent tells
		}
		if mask&unix.IN_IGNORED != 0 {
			return io.EOF
		}
		return w.send("remove", "")
	}
	if name == "" {
		path = dir
		if dir != "" {
			return nil // as above
		}
	}
	if w.ours(path, name) {
		return nil
	}
	isDir := mask&unix.IN_ISDIR != 0
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		if err := w.send("create", path); err != nil {
			return err
		}
		if isDir && w.o.req.Recursive {
			return w.added(path)
		}
	case mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != 0:
		return w.send("write", path)
	case mask&unix.IN_ATTRIB != 0:
		return w.send("chmod", path)
	case mask&unix.IN_DELETE != 0:
		return w.send("remove", path)
	case mask&unix.IN_MOVED_FROM != 0:
		if isDir {
			w.drop(path)
		}
		return w.send("rename", path)
	}
	return nil
}

// ours tells whether a name is that of a file in the making: a temporary one, or
// one without a name, which the kernel tells of as # and its number.
func (w *watcher) ours(path, name string) bool {
	if isTempName(name) {
		return true
	}
	if digits := strings.TrimPrefix(name, "#"); digits == name || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	var st unix.Stat_t
	return w.o.as(func() error { return unix.Lstat(join(w.o.path, path), &st) }) == unix.ENOENT
}

// added watches a new directory. One that is gone again, or closed to the user, is no error.
func (w *watcher) added(rel string) error {
	err := w.add(rel, true)
	if e, ok := errors.AsType[*guestproto.WireError](err); ok && (e.Reason == "not_found" || e.Reason == "forbidden" || e.Reason == "invalid_argument") {
		return nil
	}
	return err
}

// send sends an event, but not the same twice in a row: a long write is many events.
func (w *watcher) send(kind, path string) error {
	e := guestproto.WatchEvent{Kind: kind, Path: path}
	if e == w.last {
		return nil
	}
	w.last = e
	return w.o.s.SendMessage(&e, false)
}
