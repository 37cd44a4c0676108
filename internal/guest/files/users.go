package files

import (
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxTable bounds what is read of passwd and group, which the agent may have written.
const maxTable = 1 << 20

// account is a user of the box.
type account struct {
	identity
	home string
}

// users reads the box's passwd and group, again when they have changed.
type users struct {
	mu            sync.Mutex
	passwd, group table
}

type table struct {
	stamp  unix.Stat_t
	byName map[string][]string // first entry wins
	byID   map[uint32][]string
	lines  [][]string
}

// load reads a table of colon-separated lines with the id in the third field.
func (t *table) load(path string, fields int) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		*t = table{}
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		*t = table{}
		return
	}
	if t.byName != nil && st.Ino == t.stamp.Ino && st.Dev == t.stamp.Dev && st.Mtim == t.stamp.Mtim && st.Size == t.stamp.Size {
		return
	}
	*t = table{stamp: st, byName: map[string][]string{}, byID: map[uint32][]string{}}
	data := make([]byte, min(st.Size, maxTable))
	n, _ := readFull(fd, data) // what could be read, then
	for line := range strings.Lines(string(data[:n])) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) < fields {
			continue
		}
		id, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			continue
		}
		t.lines = append(t.lines, f)
		if t.byName[f[0]] == nil {
			t.byName[f[0]] = f
		}
		if t.byID[uint32(id)] == nil {
			t.byID[uint32(id)] = f
		}
	}
}

func (u *users) reload() {
	u.passwd.load("/etc/passwd", 6)
	u.group.load("/etc/group", 4)
}

// find gives the account of a name or number; "" is root. A number needs no entry.
func (u *users) find(name string) (account, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reload()
	if name == "" {
		name = "0"
	}
	f := u.passwd.byName[name]
	if f == nil {
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil || id == 1<<32-1 {
			return account{}, notFound("user "+name, "the box has no such user", "name a user of the box's /etc/passwd, or a number")
		}
		if f = u.passwd.byID[uint32(id)]; f == nil {
			return account{identity{uid: uint32(id), gid: uint32(id)}, "/"}, nil
		}
	}
	uid, _ := strconv.ParseUint(f[2], 10, 32) // checked by load
	gid, err := strconv.ParseUint(f[3], 10, 32)
	if err != nil {
		gid = uid
	}
	a := account{identity{uid: uint32(uid), gid: uint32(gid)}, f[5]}
	for _, g := range u.group.lines {
		for member := range strings.SplitSeq(g[3], ",") {
			if id, _ := strconv.ParseUint(g[2], 10, 32); member == f[0] && len(a.groups) < 1024 {
				a.groups = append(a.groups, uint32(id))
			}
		}
	}
	if !strings.HasPrefix(a.home, "/") {
		a.home = "/"
	}
	return a, nil
}

// names gives the names of ids, "" where there are none.
func (u *users) names(uid, gid uint32) (user, group string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.passwd.byID[uid]; f != nil {
		user = f[0]
	}
	if f := u.group.byID[gid]; f != nil {
		group = f[0]
	}
	return user, group
}

// owner reads "user", "user:group" or ":group"; -1 stands for unchanged.
func (u *users) owner(s string) (uid, gid int, err error) {
	user, group, _ := strings.Cut(s, ":")
	uid, gid = -1, -1
	if user != "" {
		a, err := u.find(user)
		if err != nil {
			return 0, 0, err
		}
		uid = int(a.uid)
	}
	if group != "" {
		u.mu.Lock()
		f := u.group.byName[group]
		u.mu.Unlock()
		if f != nil {
			group = f[2]
		}
		id, err := strconv.ParseUint(group, 10, 32)
		if err != nil || id == 1<<32-1 {
			return 0, 0, notFound("group "+group, "the box has no such group", "name a group of the box's /etc/group, or a number")
		}
		gid = int(id)
	}
	if uid < 0 && gid < 0 {
		return 0, 0, invalid("owner", "neither a user nor a group is named", "write user, user:group or :group")
	}
	return uid, gid, nil
}

// readFull reads until the buffer is full or the file ends.
func readFull(fd int, p []byte) (int, error) {
	for n := 0; ; {
		k, err := read(fd, p[n:])
		n += k
		if err != nil || k == 0 || n == len(p) {
			return n, err
		}
	}
}

func read(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
