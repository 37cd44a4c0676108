package files

import (
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

func (o *op) write() error {
	if o.req.Parents {
		dir, _, err := split(o.path)
		if err != nil {
			return err
		}
		if err := o.as(func() error { _, err := makeDirs(dir, 0o755); return err }); err != nil {
			return at(dir, err)
		}
	}
	if o.req.Append {
		return at(o.req.Path, o.appendTo())
	}
	return at(o.req.Path, o.replace())
}

// replace writes a new file and puts it in place of the old one in one step:
// readers see the one or the other, and a lost client leaves the old one. The
// new file has the old one's mode and, where the user may give it away, owner.
func (o *op) replace() error {
	t, err := o.newTarget()
	if err != nil {
		return err
	}
	defer t.discard()
	if err := o.room(t.dirfd); err != nil {
		return err
	}
	if err := o.copyIn(func(p []byte) error { return writeAll(t.fd, p) }); err != nil {
		return err
	}
	if err := o.as(t.commit); err != nil {
		return err
	}
	return o.sendInfo(t.fd)
}

func (o *op) sendInfo(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return o.s.SendMessage(o.info(&st, o.req.Path, ""), true)
}

// target is a file to be: a file without a name where the file system can make
// one (it cannot be left behind, not even by a kill), else one with a temporary name.
type target struct {
	o     *op
	dirfd int
	name  string
	fd    int
	temp  string       // name in the directory that must not stay; "" when there is none
	old   *unix.Stat_t // of the file that is replaced
	mode  uint32
}

func (o *op) newTarget() (t *target, err error) {
	t = &target{o: o, dirfd: -1, fd: -1, mode: o.req.Mode & 0o7777}
	if t.mode == 0 {
		t.mode = 0o644
	}
	if strings.HasSuffix(o.path, "/") {
		return nil, unix.EISDIR
	}
	if err = o.as(t.open); err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

func (t *target) open() (err error) {
	path, err := t.throughLink(t.o.path)
	if err != nil {
		return err
	}
	if t.dirfd, t.name, err = parent(path); err != nil {
		return err
	}
	var st unix.Stat_t
	switch err = unix.Fstatat(t.dirfd, t.name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT && t.o.req.NoCreate:
		return err
	case err == unix.ENOENT:
		if len(t.name) > 255 {
			return unix.ENAMETOOLONG
		}
	case err != nil:
		return err
	case isDir(&st):
		return unix.EISDIR
	case !isReg(&st):
		return unix.ENXIO
	default:
		// A rename asks for the directory only; whoever may not write the file shall not replace it.
		if err := unix.Faccessat(t.dirfd, t.name, unix.W_OK, unix.AT_EACCESS); err != nil && err != unix.ETXTBSY {
			return err
		}
		t.old, t.mode = &st, st.Mode&0o777
	}
	t.fd, err = unix.Openat(t.dirfd, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	switch err {
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOENT:
		t.temp = tempName()
		t.fd, err = unix.Openat(t.dirfd, t.temp, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	}
	return err
}

// commit gives the file its owner, mode and name.
func (t *target) commit() error {
	if t.old != nil {
		// Giving away is root's; a member of the group may keep the group.
		if unix.Fchown(t.fd, int(t.old.Uid), int(t.old.Gid)) != nil {
			_ = unix.Fchown(t.fd, -1, int(t.old.Gid))
		}
	}
	if err := unix.Fchmod(t.fd, t.mode); err != nil {
		return err
	}
	if t.temp == "" {
		name := tempName()
		if err := unix.Linkat(unix.AT_FDCWD, procFD(t.fd), t.dirfd, name, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		t.temp = name
	}
	if err := unix.Renameat(t.dirfd, t.temp, t.dirfd, t.name); err != nil {
		return err
	}
	t.temp = ""
	return nil
}

// discard closes the target and removes what was not committed.
func (t *target) discard() {
	if t.temp != "" {
		_ = t.o.as(func() error { return unix.Unlinkat(t.dirfd, t.temp, 0) }) // gone already, then
	}
	for _, fd := range []int{t.fd, t.dirfd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

const tempPrefix = ".dsec-"

func isTempName(name string) bool {
	return len(name) == len(tempPrefix)+16 && strings.HasPrefix(name, tempPrefix)
}

// tempName is short, so that it fits wherever the real name does.
func tempName() string {
	var b [8]byte
	// Not crypto/rand, whose start-up every PID 1 would pay. A short answer makes a name that exists, and an error.
	_, _ = unix.Getrandom(b[:], 0)
	const hex = "0123456789abcdef"
	name := []byte(tempPrefix)
	for _, c := range b {
		name = append(name, hex[c>>4], hex[c&15])
	}
	return string(name)
}

// throughLink gives the path of the file that a symbolic link leads to, and any
// other path as it is. A link that somebody else planted in a sticky directory is not
// followed, whatever the machine's fs.protected_symlinks says.
func (t *target) throughLink(path string) (string, error) {
	var st, dir, real unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return path, nil // what is wrong with it shows when it is opened
	}
	parent, _, err := split(path)
	if err != nil {
		return "", err
	}
	if err := unix.Stat(parent, &dir); err != nil {
		return "", err
	}
	const open = unix.S_ISVTX | unix.S_IWOTH
	if dir.Mode&open == open && st.Uid != t.o.who.uid && st.Uid != dir.Uid {
		return "", unix.EACCES
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return "", notFound("path "+path, "it is a symbolic link to a file that does not exist", "write to the link's target")
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, 2*unix.PathMax)
	n, err := unix.Readlink(procFD(fd), buf)
	if err != nil {
		return "", err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if err := unix.Lstat(string(buf[:n]), &real); err != nil || real.Ino != st.Ino || real.Dev != st.Dev {
		return "", conflict("path "+path, "it was moved meanwhile", "send it again")
	}
	return string(buf[:n]), nil
}

// appendTo adds to a file in place. When the data ends early the file is cut
// back to what it was, unless somebody else wrote too.
func (o *op) appendTo() error {
	fd := -1
	flags := unix.O_WRONLY | unix.O_APPEND | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	if !o.req.NoCreate {
		flags |= unix.O_CREAT
	}
	mode := o.req.Mode & 0o7777
	if mode == 0 {
		mode = 0o644
	}
	err := o.as(func() (err error) { fd, err = unix.Open(o.path, flags, mode); return err })
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if !isReg(&st) {
		return unix.ENXIO
	}
	if o.req.Offset > 0 && o.req.Offset != st.Size {
		return conflict("path "+o.req.Path, "the file has "+itoa(int(st.Size))+" bytes, the append was to begin at "+itoa(int(o.req.Offset)), "stat the file and go on from its size")
	}
	if err := o.room(fd); err != nil {
		return err
	}
	written := int64(0)
	err = o.copyIn(func(p []byte) error {
		// As the user: the kernel takes set-id bits from a file that somebody else than root writes.
		err := o.as(func() error { return writeAll(fd, p) })
		if err == nil {
			written += int64(len(p))
		}
		return err
	})
	if err != nil {
		var now unix.Stat_t
		if unix.Fstat(fd, &now) == nil && now.Size-st.Size-written < chunk && now.Size >= st.Size {
			_ = unix.Ftruncate(fd, st.Size) // the error that is told is the first one
		}
		return err
	}
	return o.sendInfo(fd)
}

// room refuses early what was announced larger than the disk's free space.
func (o *op) room(fd int) error {
	var st unix.Statfs_t
	if o.req.Size <= 0 || unix.Fstatfs(fd, &st) != nil || st.Blocks == 0 {
		return nil // nothing announced, or a file system without limit
	}
	if free := int64(st.Bavail) * st.Bsize; o.req.Size > free {
		return diskFull("path "+o.req.Path, itoa(int(o.req.Size))+" bytes do not fit into "+itoa(int(free))+" free bytes")
	}
	return nil
}

// copyIn hands the stream's data to put until its end, and checks it against the announced size.
func (o *op) copyIn(put func([]byte) error) error {
	total := int64(0)
	for {
		f, err := o.s.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if !f.Data {
			return invalid("request", "a message instead of data", "send a valid request")
		}
		total += int64(len(f.Payload))
		if err := put(f.Payload); err != nil {
			return err
		}
	}
	if o.req.Size >= 0 && total != o.req.Size && o.req.Size != 0 {
		return invalid("size", itoa(int(total))+" bytes came, "+itoa(int(o.req.Size))+" were announced", "announce the right size, or none")
	}
	return nil
}
