package files

import (
	"io"

	"golang.org/x/sys/unix"
)

// move renames, and between file systems (/tmp and /workspace are two) copies
// and removes. The new name appears in one step in both cases.
func (o *op) move() error {
	to, err := o.resolve(o.req.To)
	if err != nil {
		return err
	}
	if dir, _, err := split(to); err == nil && o.owner != nil {
		if err := o.as(func() error { return o.makeDirs(dir, 0o755) }); err != nil {
			return at(dir, err)
		}
	}
	err = o.as(func() error { return rename(o.path, to, o.req.Overwrite) })
	if err == unix.EXDEV {
		err = o.moveAcross(to)
	}
	if err != nil {
		if err == unix.ENOENT && o.as(func() error { var st unix.Stat_t; return unix.Lstat(o.path, &st) }) == nil {
			return at(o.req.To, err) // it is the new name's directory that is missing
		}
		if err == unix.EEXIST || err == unix.ENOTEMPTY {
			return at(o.req.To, unix.EEXIST)
		}
		return at(o.req.Path, err)
	}
	return o.done(0)
}

func rename(from, to string, overwrite bool) error {
	if _, _, err := split(from); err != nil {
		return err
	}
	if _, _, err := split(to); err != nil {
		return err
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if overwrite {
		flags = 0
	}
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
}

// moveAcross copies through a tar stream into a temporary directory beside the
// new name, renames, and then removes the old one.
func (o *op) moveAcross(to string) error {
	dir, _, err := split(to)
	if err != nil {
		return err
	}
	temp := join(dir, tempName())
	if err := o.as(func() error { return unix.Mkdir(temp, 0o700) }); err != nil {
		return at(dir, err)
	}
	defer func() { _ = o.removePath(temp, true) }() // best effort: the error that is told is the first one
	const name = "moved"
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := o.pack(pw, o.path, name)
		pw.CloseWithError(err)
		packed <- err
	}()
	_, err = o.unpack(pr, temp)
	pr.CloseWithError(err)
	// The packer's own failure comes first: it is what the unpacker then stumbles over.
	if perr := <-packed; perr != nil && perr != err {
		return perr
	}
	if err != nil {
		return err
	}
	if err := o.as(func() error { return rename(join(temp, name), to, o.req.Overwrite) }); err != nil {
		return err
	}
	return o.removePath(o.path, true)
}
