package template

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/egress/link"
	"github.com/dsec-platform/dsec/internal/layer"
)

// mountPoints are the directories that every root has: a read-only root cannot
// grow them later.
var mountPoints = []struct {
	path string
	mode int64
	user bool // belongs to the user
}{
	{"dev", 0o755, false}, {"proc", 0o555, false}, {"sys", 0o555, false},
	{"run", 0o755, false}, {"tmp", 0o1777, false}, {"var", 0o755, false}, {"var/tmp", 0o1777, false},
	{"root", 0o700, false}, {"home", 0o755, false}, {"home/user", 0o755, true}, {"workspace", 0o755, true},
}

// toolkit puts a thin layer on top that holds what boxes need and the layers so
// far lack: mount points, the user, and, the first time, the network files of a
// box, whatever the source brought from the machine where it was made.
func (b *build) toolkit(ctx context.Context, first bool) error {
	b.progress(Progress{Stage: "toolkit", Message: "mount points and accounts"})
	view, err := layer.OpenView(b.infos)
	if err != nil {
		return err
	}
	defer view.Close()
	k := &kit{view: view, have: map[string]bool{}}
	if err := k.collect(first); err != nil {
		return err
	}
	if len(k.entries) == 0 && !first {
		return nil
	}
	in, err := b.s.layers.Write(ctx, layer.WriteOptions{Format: layer.Dir}, k.write)
	if err != nil {
		return err
	}
	b.push(in, "toolkit")
	return nil
}

type kitEntry struct {
	h    *tar.Header
	data string
}

// kit collects the entries of a toolkit layer over a view of what is there.
type kit struct {
	view    *layer.View
	entries []kitEntry
	have    map[string]bool // directories already among entries
}

func (k *kit) write(w *layer.Writer) error {
	if err := w.Add(&tar.Header{Typeflag: tar.TypeDir, Mode: 0o755, ModTime: kitTime}, nil); err != nil {
		return err
	}
	for _, e := range k.entries {
		e.h.Size = int64(len(e.data))
		if err := w.Add(e.h, strings.NewReader(e.data)); err != nil {
			return err
		}
	}
	return nil
}

// resolvFile names the resolver of boxes that have a way out; in others it cannot be reached, and
// lookups fail at once.
const resolvFile = link.ResolvConf

const hostsFile = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// kitTime is the time of everything in a toolkit, so that the same toolkit has
// the same digest.
var kitTime = time.Unix(0, 0)

func (k *kit) collect(first bool) error {
	acc, err := k.accounts()
	if err != nil {
		return err
	}
	for _, m := range mountPoints {
		uid, gid := 0, 0
		if m.user {
			uid, gid = acc.uid, acc.gid
		}
		if err := k.dir(m.path, m.mode, uid, gid); err != nil {
			return err
		}
	}
	if err := k.sudo(); err != nil || !first {
		return err
	}
	for _, f := range []struct{ path, data string }{
		{"etc/hosts", hostsFile},
		{"etc/hostname", "localhost\n"},
		{"etc/resolv.conf", resolvFile},
	} {
		if err := k.file(f.path, f.data, layer.Attr{Mode: 0o644}); err != nil {
			return err
		}
	}
	if _, err := k.view.Lstat("etc/mtab"); errors.Is(err, fs.ErrNotExist) {
		k.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/mtab", Linkname: "../proc/self/mounts", Mode: 0o777}, "")
	}
	return nil
}

func (k *kit) add(h *tar.Header, data string) {
	if h.ModTime.IsZero() {
		h.ModTime = kitTime
	}
	k.entries = append(k.entries, kitEntry{h, data})
}

// dir makes sure that name is a directory: one that is there stays as it is, a
// link or file gives way.
func (k *kit) dir(name string, mode int64, uid, gid int) error {
	a, err := k.view.Lstat(name)
	if err == nil && a.IsDir() || k.have[name] {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := k.parents(name); err != nil {
		return err
	}
	k.have[name] = true
	k.add(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: uid, Gid: gid}, "")
	return nil
}

// parents repeats the directories above name as they are below: overlay shows
// the attributes of the topmost one.
func (k *kit) parents(name string) error {
	dir := path.Dir(name)
	if dir == "." || k.have[dir] {
		return nil
	}
	if err := k.parents(dir); err != nil {
		return err
	}
	k.have[dir] = true
	h := &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}
	a, err := k.view.Lstat(dir)
	if err == nil && a.IsDir() {
		h.Mode, h.Uid, h.Gid, h.ModTime = int64(a.Mode&0o7777), a.UID, a.GID, time.Unix(a.MTime, 0)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k.add(h, "")
	return nil
}

func (k *kit) file(name, data string, a layer.Attr) error {
	if err := k.parents(name); err != nil {
		return err
	}
	k.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(a.Mode & 0o7777), Uid: a.UID, Gid: a.GID}, data)
	return nil
}

// read gives a file of the layers so far; exists is false when there is none.
func (k *kit) read(name string) (data []byte, a layer.Attr, exists bool, err error) {
	data, a, err = k.view.ReadFile(name, 4<<20)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, layer.Attr{Mode: 0o644}, false, nil
	}
	return bytes.TrimRight(data, "\n"), a, err == nil, err
}
