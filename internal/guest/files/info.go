package files

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

func itoa(n int) string { return strconv.Itoa(n) }

func (o *op) stat() error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if o.req.Follow {
		flags = 0
	}
	var e entry
	err := o.as(func() error {
		if err := unix.Fstatat(unix.AT_FDCWD, o.path, &e.st, flags); err != nil {
			return err
		}
		e.target = linkTarget(unix.AT_FDCWD, o.path, &e.st)
		return nil
	})
	if err != nil {
		return at(o.req.Path, err)
	}
	info := o.info(&e.st, o.req.Path, e.target)
	o.more(info, o.path, unix.AT_FDCWD, o.path)
	return o.s.SendMessage(info, true)
}

// info is the message about a file; path is as asked.
func (o *op) info(st *unix.Stat_t, path, target string) *guestproto.FileInfo {
	name := path
	if _, last, err := split(path); err == nil {
		name = last
	}
	i := &guestproto.FileInfo{
		Path: path, Name: name, Type: fileType(st.Mode), Size: st.Size, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		ModUnix: st.Mtim.Nano(), Target: target, Links: uint64(st.Nlink), Blocks512: st.Blocks,
	}
	i.User, i.Group = o.w.users.names(st.Uid, st.Gid)
	if len(i.Name) > guestproto.MaxName {
		i.Name = i.Name[:guestproto.MaxName]
	}
	return i
}

func fileType(mode uint32) guestproto.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return guestproto.TypeFile
	case unix.S_IFDIR:
		return guestproto.TypeDir
	case unix.S_IFLNK:
		return guestproto.TypeSymlink
	case unix.S_IFIFO:
		return guestproto.TypeFifo
	case unix.S_IFSOCK:
		return guestproto.TypeSocket
	}
	return guestproto.TypeDevice
}

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }
func isReg(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }

// linkTarget reads a symbolic link, as much as there is of it.
func linkTarget(dirfd int, name string, st *unix.Stat_t) string {
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return ""
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dirfd, name, buf)
	if err != nil {
		return "" // replaced meanwhile
	}
	return string(buf[:n])
}
