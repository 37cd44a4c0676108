package setup

import (
	"golang.org/x/sys/unix"
)

// addWritable attaches the store's directories at the writable paths, and
// makes those that live in a writable root. A writable directory belongs to
// whom the template's directory belongs to, or to the default user where
// that is root: who asks for a writable path wants to write there.
func addWritable(s *Settings, uid, gid int, mounts []mount, plain []string) error {
	for i := range mounts {
		path := mounts[i].path
		st, err := attachWritable(&mounts[i])
		if err != nil {
			return err
		}
		if err := settle(path, st, uid, gid); err != nil {
			return err
		}
		s.WritableDirs = append(s.WritableDirs, path)
	}
	for _, path := range plain {
		var st unix.Stat_t
		if err := mkdirAll(path); err != nil {
			return stepError{"make", path, err}
		}
		if err := unix.Stat(path, &st); err != nil {
			return stepError{"make", path, err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return stepError{"make", path, unix.ENOTDIR}
		}
		if err := settle(path, &st, uid, gid); err != nil {
			return err
		}
		s.WritableDirs = append(s.WritableDirs, path)
	}
	return nil
}

func attachWritable(m *mount) (*unix.Stat_t, error) {
	var st unix.Stat_t
	at, err := openPath(m.path)
	if err != nil {
		return nil, stepError{"mount point", m.path, err}
	}
	defer unix.Close(at)
	if err := unix.Fstat(at, &st); err != nil {
		return nil, stepError{"mount point", m.path, err}
	}
	return &st, attach(m)
}

func settle(path string, like *unix.Stat_t, uid, gid int) error {
	if like.Uid != 0 {
		uid, gid = int(like.Uid), int(like.Gid)
	}
	// Links of the template are followed, as they were to attach what is there.
	if err := unix.Chown(path, uid, gid); err != nil {
		return stepError{"own", path, err}
	}
	if err := unix.Chmod(path, like.Mode&0o7777); err != nil {
		return stepError{"chmod", path, err}
	}
	return nil
}

// reown hands the writable directories of the pool's default user to the
// claim's. They are empty: nothing has run in the box.
func reown(old, now *Settings) error {
	oldUID, _, _ := lookupUser(old.User)
	uid, gid, _ := lookupUser(now.User)
	for _, path := range old.WritableDirs {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return stepError{"own", path, err}
		}
		if int(st.Uid) != oldUID || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if err := unix.Chown(path, uid, gid); err != nil {
			return stepError{"own", path, err}
		}
	}
	return nil
}

func mkdirAll(path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if err := unix.Mkdir(path[:i], 0o755); err != nil && err != unix.EEXIST {
			return err
		}
	}
	return nil
}
