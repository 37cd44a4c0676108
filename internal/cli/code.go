package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// readCode gives a tar of a directory, or the bytes of a tar.
func readCode(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return os.ReadFile(path)
	}
	var b bytes.Buffer
	if err := writeTar(&b, path); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeTar packs the tree below dir, names relative to it, without owners: what
// arrives belongs to the user in the box. Sockets and devices are left out.
func writeTar(w io.Writer, dir string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || rel == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return addEntry(tw, p, filepath.ToSlash(rel), info)
	})
	return errors.Join(err, tw.Close())
}

func addEntry(tw *tar.Writer, path, name string, info fs.FileInfo) error {
	target := ""
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		var err error
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	case !mode.IsRegular() && !mode.IsDir():
		return nil
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = name, 0, 0, "", "", tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := io.Copy(tw, f); err != nil {
		return fmt.Errorf("%s: %w (it changed while it was read, %d bytes)", path, err, n)
	}
	return nil
}

// extractTar unpacks a tar that came from a box below dir. It is hostile: no
// name and no link in it reaches outside of dir, and no device, owner or set-id
// bit is taken over.
func extractTar(r io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extractEntry(root, tr, h); err != nil {
			return fmt.Errorf("%s: %w", printable(h.Name), err)
		}
	}
}

func extractEntry(root *os.Root, r io.Reader, h *tar.Header) error {
	name := filepath.Clean(strings.TrimLeft(h.Name, "/"))
	if name == "." {
		return nil
	}
	perm := fs.FileMode(h.Mode) & 0o777
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, perm|0o700)
	case tar.TypeReg:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Link(filepath.Clean(strings.TrimLeft(h.Linkname, "/")), name)
	}
	return nil // devices, fifos and sockets stay in the box
}
