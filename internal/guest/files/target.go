package files

import (
	"strings"

	"golang.org/x/sys/unix"
)

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

// planted refuses a symbolic link that somebody else planted where everybody may.
func (o *op) planted(path string, link *unix.Stat_t) error {
	parent, _, err := split(path)
	if err != nil {
		return err
	}
	var dir unix.Stat_t
	if err := unix.Stat(parent, &dir); err != nil {
		return err
	}
	const open = unix.S_ISVTX | unix.S_IWOTH
	if dir.Mode&open == open && link.Uid != o.who.uid && link.Uid != dir.Uid {
		return unix.EACCES
	}
	return nil
}

// throughLink gives the path of the file that a symbolic link leads to, and any
// other path as it is. A link that somebody else planted in a sticky directory is not
// followed, whatever the machine's fs.protected_symlinks says.
func (t *target) throughLink(path string) (string, error) {
	var st, real unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return path, nil // what is wrong with it shows when it is opened
	}
	if err := t.o.planted(path, &st); err != nil {
		return "", err
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
