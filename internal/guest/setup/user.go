package setup

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// lookupUser finds a name or number in the box's passwd. A number that is not
// there is its own group; of names, root alone need not be there, and no name is root too.
// It takes for an entry what ops do.
func lookupUser(name string) (uid, gid int, found bool) {
	number, err := strconv.Atoi(name)
	numeric := err == nil && number >= 0
	for line := range bytes.Lines(readFile("/etc/passwd", 1<<20)) {
		f := bytes.Split(bytes.TrimRight(line, "\n"), []byte(":"))
		if len(f) < 7 {
			continue
		}
		u, err1 := strconv.Atoi(string(f[2]))
		g, err2 := strconv.Atoi(string(f[3]))
		if err1 == nil && err2 == nil && u >= 0 && g >= 0 && (string(f[0]) == name || (numeric && u == number)) {
			return u, g, true
		}
	}
	if numeric {
		return number, number, true
	}
	return 0, 0, name == "" || name == "root"
}

// readFile reads a regular file of the template, at most limit bytes.
func readFile(path string, limit int) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var buf []byte
	chunk := make([]byte, 4096)
	for len(buf) < limit {
		n, err := unix.Read(fd, chunk)
		if n <= 0 || err != nil {
			break
		}
		buf = append(buf, chunk[:n]...)
	}
	return buf
}
