package guest

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// user is who an op runs as.
type user struct {
	name        string
	uid, gid    uint32
	groups      []uint32
	home, shell string
}

// The box's passwd and group belong to the agent: any size, any content.
const (
	maxPasswd = 1 << 20
	maxGroups = 64
	maxField  = 256
)

// lookupUser finds a name or number in the box's passwd. A number that is not
// there is a user without a home; a name that is not there is not found.
//
// It reads the files each time, for every op: what a stat says of them does not tell whether they
// are as they were (a write by mmap need not show in it). Therefore it makes next to no garbage.
func lookupUser(name string) (user, bool) { return lookupUserIn("/etc/passwd", "/etc/group", name) }

func lookupUserIn(passwd, group, name string) (user, bool) {
	room := chunks.Get().(*[pumpChunk]byte)
	defer chunks.Put(room)
	// What was found of passwd is kept in strings: its room serves for group, too.
	return findUser(name, readRegularInto(room[:0], passwd, maxPasswd), func() []byte { return readRegularInto(room[:0], group, maxPasswd) })
}

func findUser(name string, passwd []byte, group func() []byte) (user, bool) {
	number, numeric := parseID([]byte(name))
	var u user
	found := false
	var list [8][]byte
	for line := range bytes.Lines(passwd) {
		f := splitLine(list[:0], line)
		if len(f) < 7 || len(f[0]) == 0 || len(f[0]) > maxField {
			continue
		}
		uid, ok1 := parseID(f[2])
		gid, ok2 := parseID(f[3])
		if !ok1 || !ok2 || (string(f[0]) != name && !(numeric && uid == number)) {
			continue
		}
		u = user{name: string(f[0]), uid: uid, gid: gid, home: field(f[5]), shell: field(f[6])}
		found = true
		break
	}
	switch {
	case !found && name == "root":
		return user{name: "root", home: "/root"}, true
	case !found && !numeric:
		return user{}, false
	case !found:
		return user{name: name, uid: number, gid: number, groups: []uint32{number}}, true
	}
	u.groups = groupsOf(u, group())
	return u, true
}

// splitLine splits a line at its colons into list, whose last element takes what is left.
func splitLine(list [][]byte, line []byte) [][]byte {
	line = bytes.TrimRight(line, "\n")
	for len(list) < cap(list)-1 {
		field, rest, more := bytes.Cut(line, []byte(":"))
		if !more {
			break
		}
		list, line = append(list, field), rest
	}
	return append(list, line)
}

func groupsOf(u user, group []byte) []uint32 {
	list := []uint32{u.gid}
	name := []byte(u.name)
	var fields [4][]byte
	for line := range bytes.Lines(group) {
		if !bytes.Contains(line, name) { // most
			continue
		}
		f := splitLine(fields[:0], line)
		if len(f) < 4 {
			continue
		}
		gid, ok := parseID(f[2])
		if !ok || gid == u.gid || len(list) == maxGroups {
			continue
		}
		for m := range bytes.SplitSeq(f[3], []byte(",")) {
			if string(m) == u.name {
				list = append(list, gid)
				break
			}
		}
	}
	return list
}

func field(b []byte) string {
	if len(b) > 4096 || bytes.IndexByte(b, 0) >= 0 {
		return ""
	}
	return string(b)
}

// parseID reads a plain decimal id that can be one: not -1, which means "unchanged".
func parseID(b []byte) (uint32, bool) {
	v, err := strconv.ParseUint(string(b), 10, 32)
	return uint32(v), err == nil && v != 1<<32-1 && b[0] != '+'
}

// readRegular reads at most limit bytes of a regular file; nothing when it is
// absent or anything else (a fifo must not hold the guest up).
func readRegular(path string, limit int) []byte { return readRegularInto(nil, path, limit) }

// readRegularInto reads into room where that is large enough.
func readRegularInto(room []byte, path string, limit int) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	hint := int(min(st.Size, int64(limit)))
	if hint >= cap(room) {
		return readAll(fd, limit, hint)
	}
	return appendAll(room, fd, limit)
}

// readAll reads a file from its start, at most limit bytes; hint is its likely size.
func readAll(fd, limit, hint int) []byte {
	return appendAll(make([]byte, 0, max(hint+1, 512)), fd, limit)
}

// appendAll is readAll into buf, which is empty and grows when it has to.
func appendAll(buf []byte, fd, limit int) []byte {
	for len(buf) < limit {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := unix.Pread(fd, buf[len(buf):min(cap(buf), limit)], int64(len(buf)))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		buf = buf[:len(buf)+n]
	}
	return buf
}
