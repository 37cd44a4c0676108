package files

import (
	"bufio"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/tar"
)

func (o *op) tarIn() error {
	n, err := o.unpack(o.s, o.path)
	if err != nil {
		return err
	}
	return o.done(n)
}

// unpack unpacks a tar below dir (made if absent) and gives the number of
// entries. Nothing is written outside dir: names with ".." are refused, leading
// slashes fall, and no symbolic link is followed, neither one that the archive
// brought nor one that was there. Files replace files, directories stay. Owners are the archive's when the user is root.
func (o *op) unpack(r io.Reader, dir string) (int64, error) {
	u := unpacker{o: o, dir: dir, root: -1}
	defer u.close()
	err := o.as(func() (err error) {
		if u.fresh, err = makeDirs(dir, 0o755); err == nil {
			u.root, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		return err
	})
	if err != nil {
		return 0, at(dir, err)
	}
	br := bufio.NewReaderSize(r, chunk)
	tr := tar.NewReader(br)
	for n := int64(0); ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			// What follows the archive's end is padding; the sender waits until it is taken.
			if _, err := io.Copy(io.Discard, br); err != nil {
				return n, err
			}
			return n, u.leave(nil)
		}
		if err != nil {
			return n, badTar(n, err)
		}
		if err := u.entry(h, tr); err != nil {
			return n, at(join(dir, h.Name), badTar(n, err))
		}
	}
}

func badTar(n int64, err error) error {
	switch err {
	case tar.ErrFormat, io.ErrUnexpectedEOF:
		return invalid("tar entry "+itoa(int(n)), "the data is not a whole tar archive", "send an uncompressed tar")
	case tar.ErrSparse:
		return invalid("tar entry "+itoa(int(n)), err.Error(), "make the archive with --format=posix, or without --sparse")
	}
	return err
}

// unpacker keeps the directories on the way to the current entry open.
type unpacker struct {
	o     *op
	dir   string
	root  int
	fresh bool // dir itself is new: the archive may set its mode
	path  []opened
	buf   []byte
}

// opened is a directory on the way. What its header said is applied when the archive leaves it: its
// mode might keep its own content out, and its content changes its time.
type opened struct {
	name string
	fd   int
	h    *tar.Header
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	parts, err := clean(h.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		if h.Type == tar.TypeDir && u.fresh {
			return u.o.as(func() error { return u.apply(u.root, h) })
		}
		return nil
	}
	if err := u.enter(parts[:len(parts)-1]); err != nil {
		return err
	}
	name, dirfd := parts[len(parts)-1], u.at()
	switch h.Type {
	case tar.TypeFile:
		return u.file(dirfd, name, h, content)
	case tar.TypeDir:
		return u.directory(dirfd, name, h)
	case tar.TypeLink:
		return u.hardLink(dirfd, name, h)
	case tar.TypeSymlink:
		return u.o.as(func() error {
			if err := replaceable(dirfd, name); err != nil {
				return err
			}
			if err := unix.Symlinkat(h.Linkname, dirfd, name); err != nil {
				return err
			}
			u.chown(dirfd, name, h)
			return nil
		})
	case tar.TypeFifo:
		return u.o.as(func() error {
			if err := replaceable(dirfd, name); err != nil {
				return err
			}
			if err := unix.Mknodat(dirfd, name, unix.S_IFIFO|h.Mode&0o777, 0); err != nil {
				return err
			}
			u.chown(dirfd, name, h)
			return nil
		})
	case tar.TypeChar, tar.TypeBlock:
		return invalid("path "+join(u.dir, h.Name), "device nodes are not unpacked", "leave devices out of the archive")
	}
	return invalid("path "+join(u.dir, h.Name), "entry of unknown type "+string(rune(h.Type)), "use files, directories, links and FIFOs")
}

// clean splits a name into its elements.
func clean(name string) ([]string, error) {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return nil, invalid("tar entry "+name, "the name has an element ..", "pack with names below one directory")
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) > maxDepth {
		return nil, invalid("tar entry "+name, "the name is more than "+itoa(maxDepth)+" directories deep", "pack a flatter tree")
	}
	return parts, nil
}

func (u *unpacker) at() int {
	if n := len(u.path); n > 0 {
		return u.path[n-1].fd
	}
	return u.root
}

// enter makes the open directories those of parts, making what is missing.
func (u *unpacker) enter(parts []string) error {
	same := 0
	for same < len(parts) && same < len(u.path) && parts[same] == u.path[same].name {
		same++
	}
	if err := u.leave(parts[:same]); err != nil {
		return err
	}
	for _, name := range parts[same:] {
		if err := u.o.as(func() error { return u.push(name, nil) }); err != nil {
			return err
		}
	}
	return nil
}

// push opens a directory in the innermost one, never through a link.
func (u *unpacker) push(name string, h *tar.Header) error {
	dirfd := u.at()
	flags := unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dirfd, name, flags, 0)
	if err == unix.ENOENT {
		if err = unix.Mkdirat(dirfd, name, 0o755); err == nil {
			fd, err = unix.Openat(dirfd, name, flags, 0)
		}
	}
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return invalid("path "+join(u.dir, u.where(name)), "it is not a directory, or a symbolic link to one", "unpack into a directory without it")
	}
	if err == nil {
		u.path = append(u.path, opened{name, fd, h})
	}
	return err
}

func (u *unpacker) where(name string) string {
	var b strings.Builder
	for _, d := range u.path {
		b.WriteString(d.name + "/")
	}
	return b.String() + name
}

// leave closes the directories that are not in keep, innermost first.
func (u *unpacker) leave(keep []string) error {
	for len(u.path) > len(keep) {
		d := u.path[len(u.path)-1]
		u.path = u.path[:len(u.path)-1]
		var err error
		if d.h != nil {
			err = u.o.as(func() error { return u.apply(d.fd, d.h) })
		}
		unix.Close(d.fd)
		if err != nil {
			return at(join(u.dir, d.h.Name), err)
		}
	}
	return nil
}

func (u *unpacker) close() {
	for _, d := range u.path {
		unix.Close(d.fd)
	}
	if u.root >= 0 {
		unix.Close(u.root)
	}
}

func (u *unpacker) directory(dirfd int, name string, h *tar.Header) error {
	return u.o.as(func() error {
		mine := h
		err := unix.Mkdirat(dirfd, name, 0o700)
		if err == unix.EEXIST {
			// A directory that is there keeps its mode where the user may not change it.
			var st unix.Stat_t
			if unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && u.o.who.uid != 0 && st.Uid != u.o.who.uid {
				mine = nil
			}
		} else if err != nil {
			return err
		}
		return u.push(name, mine)
	})
}

func (u *unpacker) hardLink(dirfd int, name string, h *tar.Header) error {
	parts, err := clean(h.Linkname)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return invalid("tar entry "+h.Name, "a hard link without a target", "pack the archive again")
	}
	return u.o.as(func() error {
		// Walk to the target as to an entry: below the root, through no link.
		from := u.root
		for _, part := range parts[:len(parts)-1] {
			fd, err := unix.Openat(from, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if from != u.root {
				unix.Close(from)
			}
			if err != nil {
				return err
			}
			from = fd
		}
		if from != u.root {
			defer unix.Close(from)
		}
		old := parts[len(parts)-1]
		var a, b unix.Stat_t
		if err := unix.Fstatat(from, old, &a, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if unix.Fstatat(dirfd, name, &b, unix.AT_SYMLINK_NOFOLLOW) == nil && a.Ino == b.Ino && a.Dev == b.Dev {
			return nil // the same file already
		}
		if err := replaceable(dirfd, name); err != nil {
			return err
		}
		return unix.Linkat(from, old, dirfd, name, 0)
	})
}

// replaceable removes what is in the way of a new entry, unless it is a directory.
func replaceable(dirfd int, name string) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if err == unix.ENOENT {
		return nil
	}
	return err
}
