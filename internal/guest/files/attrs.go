package files

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// setAttrs replaces all extended attributes below the request's prefix by the request's.
func (o *op) setAttrs(fd int) error {
	if o.req.AttrPrefix == "" {
		return nil
	}
	for _, name := range attrNames(func(p []byte) (int, error) { return unix.Flistxattr(fd, p) }, o.req.AttrPrefix) {
		if err := unix.Fremovexattr(fd, name); err != nil && err != unix.ENODATA {
			return err
		}
	}
	for _, a := range o.req.Attrs {
		name, value, _ := strings.Cut(a, "=")
		switch err := unix.Fsetxattr(fd, o.req.AttrPrefix+name, []byte(value), 0); err {
		case nil:
		case unix.EOPNOTSUPP:
			return &guestproto.WireError{Class: "user", Reason: "unsupported", Object: "path " + o.req.Path,
				Message: "its file system keeps no attributes", Remedy: "leave the attributes out, or write to another place"}
		case unix.ERANGE, unix.E2BIG, unix.EINVAL:
			return invalid("attribute "+name, err.Error(), "use a shorter name or value")
		default:
			return err
		}
	}
	return nil
}

// attrs gives the attributes of a file below the request's prefix, each "name=value". A file
// that has none, or says nothing of them, has none.
func (o *op) attrs(path string) (list []string) {
	if o.req.AttrPrefix == "" {
		return nil
	}
	for _, name := range attrNames(func(p []byte) (int, error) { return unix.Listxattr(path, p) }, o.req.AttrPrefix) {
		value := make([]byte, guestproto.MaxAttr)
		n, err := unix.Getxattr(path, name, value)
		if a := strings.TrimPrefix(name, o.req.AttrPrefix) + "=" + string(value[:max(n, 0)]); err == nil && len(a) <= guestproto.MaxAttr {
			list = append(list, a)
		}
	}
	return list
}

// attrNames gives the names that begin with prefix.
func attrNames(read func([]byte) (int, error), prefix string) (list []string) {
	n, err := read(nil)
	if err != nil || n == 0 {
		return nil
	}
	buf := make([]byte, n)
	if n, err = read(buf); err != nil {
		return nil
	}
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if strings.HasPrefix(name, prefix) && len(list) < guestproto.MaxAttrs {
			list = append(list, name)
		}
	}
	return list
}
