package files

import "golang.org/x/sys/unix"

// list sends what is in a directory, down to the request's depth. Directories
// below it that the user may not read are listed, but not what is in them.
func (o *op) list() error {
	w, err := o.walk(o.path)
	if err != nil {
		return at(o.req.Path, err)
	}
	defer w.close()
	depth := max(int64(o.req.Depth), 1)
	for {
		e, err := w.next()
		if err != nil {
			return err
		}
		if e == nil {
			return o.s.CloseSend()
		}
		info := o.info(&e.st, join(o.req.Path, e.rel), e.target)
		info.Name = e.name
		o.more(info, join(o.path, e.rel), e.dirfd, e.name)
		if err := o.s.SendMessage(info, false); err != nil {
			return err
		}
		if isDir(&e.st) && int64(e.depth) < depth {
			switch err := w.enter(); err {
			case nil, unix.EACCES, unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
			default:
				return at(info.Path, err)
			}
		}
	}
}
