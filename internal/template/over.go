package template

import (
	"archive/tar"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// over writes a layer over a view of those below it: names are resolved as a box would, and
// directories on the way keep the attributes that they have below.
type over struct {
	view *layer.View
	have map[string]bool // directories in the layer
	real map[string]string
}

func newOver(view *layer.View) *over {
	return &over{view: view, have: map[string]bool{"": true}, real: map[string]string{"": ""}}
}

// mkdirs makes name, already resolved, and what is missing above it, owned by who.
func (o *over) mkdirs(w *layer.Writer, name string, who account) error {
	if o.have[name] {
		return nil
	}
	if parent := path.Dir(name); parent != "." {
		if err := o.mkdirs(w, parent, who); err != nil {
			return err
		}
	}
	o.have[name] = true
	h := &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, Uid: who.uid, Gid: who.gid, ModTime: kitTime}
	if a, err := o.view.Lstat(name); err == nil && a.IsDir() {
		h.Mode, h.Uid, h.Gid, h.ModTime = int64(a.Mode&0o7777), a.UID, a.GID, time.Unix(a.MTime, 0)
	}
	return w.Add(h, nil)
}

// place gives the name to write an entry to, whose directory it makes, owned by who; a link in the
// place of the entry itself is not followed. existing tells that a directory is there.
func (o *over) place(w *layer.Writer, name string, who account) (real string, existing bool, err error) {
	dir, base := path.Split(name)
	dir = path.Clean("/" + dir)[1:]
	parent, ok := o.real[dir]
	if !ok {
		var a layer.Attr
		var exists bool
		if parent, a, exists, err = o.view.Resolve(dir); err != nil {
			return "", false, pathError("/"+dir, err)
		}
		if exists && !a.IsDir() {
			return "", false, errdefs.Userf(errdefs.InvalidArgument, "path /"+dir, "choose another path", "it is a file, not a directory")
		}
		o.real[dir] = parent
	}
	if parent != "" {
		if err := o.mkdirs(w, parent, who); err != nil {
			return "", false, err
		}
	}
	real = path.Join(parent, base)
	if o.have[real] {
		return real, true, nil
	}
	a, err := o.view.Lstat(real)
	return real, err == nil && a.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}
