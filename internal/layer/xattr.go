package layer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	xattrOpaque   = "trusted.overlay.opaque"
	xattrRedirect = "trusted.overlay.redirect"
	xattrCaps     = "security.capability"
	paxXattr      = "SCHILY.xattr."
)

type xattr struct{ name, value string }

// admitXattr decides which attributes enter a layer. Foreign trees lose
// everything that the kernel or overlay would obey: only overlay itself may
// have written trusted.overlay.*, and a box could turn user.overlay.* into marks
// if its layer were ever mounted by an unprivileged overlay.
func admitXattr(name, value string, overlay bool) (xattr, bool) {
	switch {
	case len(value) > maxXattr:
		return xattr{}, false
	case name == xattrCaps:
		v, ok := plainCaps(value)
		return xattr{name, v}, ok
	case strings.HasPrefix(name, "user.overlay."):
		return xattr{}, false
	case strings.HasPrefix(name, "user.") && len(name) > len("user.") && len(name) <= maxName:
		return xattr{name, value}, true
	case name == "system.posix_acl_access", name == "system.posix_acl_default":
		return xattr{name, value}, true
	case overlay && (name == xattrOpaque || name == xattrRedirect):
		return xattr{name, value}, true
	}
	return xattr{}, false
}

// plainCaps checks a file capability and gives it in the form without a root id
// (VFS_CAP_REVISION_2), which holds in every box's own id range.
func plainCaps(v string) (string, bool) {
	const rev2, rev3, revMask = 0x02000000, 0x03000000, 0xff000000
	if len(v) != 20 && len(v) != 24 {
		return "", false
	}
	magic := binary.LittleEndian.Uint32([]byte(v))
	switch {
	case magic&revMask == rev2 && len(v) == 20:
		return v, true
	case magic&revMask == rev3 && len(v) == 24:
		b := []byte(v[:20])
		binary.LittleEndian.PutUint32(b, magic&^uint32(revMask)|rev2)
		return string(b), true
	}
	return "", false
}

// readXattrs lists what an open file or directory carries, sorted by name.
func readXattrs(fd int) ([]xattr, error) {
	var stack [1024]byte
	buf := stack[:]
	n, err := unix.Flistxattr(fd, buf)
	for errors.Is(err, unix.ERANGE) {
		buf = make([]byte, maxXattr)
		n, err = unix.Flistxattr(fd, buf)
		break
	}
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []xattr
	for _, name := range bytes.Split(bytes.TrimSuffix(buf[:n], []byte{0}), []byte{0}) {
		v, err := getXattr(fd, string(name))
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, xattr{string(name), v})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out, nil
}

func getXattr(fd int, name string) (string, error) {
	buf := make([]byte, 256)
	n, err := unix.Fgetxattr(fd, name, buf)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, maxXattr)
		n, err = unix.Fgetxattr(fd, name, buf)
	}
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
