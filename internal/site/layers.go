package site

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/erofs/go-erofs"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// layers is a read-only view of a template's layers, top first, good enough to read configuration files: a
// file of an upper layer hides the one below; deletions are not seen.
type layers []fs.FS

// openLayers opens what can be opened; done closes it.
func openLayers(list []runtime.Layer) (tree layers, done func()) {
	var files []*os.File
	var roots []*os.Root
	for _, l := range list {
		if !l.EROFS {
			if r, err := os.OpenRoot(l.Path); err == nil {
				roots = append(roots, r)
				tree = append(tree, r.FS())
			}
			continue
		}
		f, err := os.Open(l.Path)
		if err != nil {
			continue
		}
		files = append(files, f)
		if img, err := erofs.Open(f); err == nil {
			tree = append(tree, img)
		}
	}
	return tree, func() {
		for _, f := range files {
			_ = f.Close()
		}
		for _, r := range roots {
			_ = r.Close()
		}
	}
}

// Open implements fs.FS.
func (l layers) Open(name string) (fs.File, error) {
	err := error(&fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist})
	for _, layer := range l {
		f, lerr := layer.Open(name)
		if lerr == nil {
			return f, nil
		}
		if !errors.Is(lerr, fs.ErrNotExist) {
			err = lerr
		}
	}
	return nil, err
}

// ReadDir implements fs.ReadDirFS: the entries of all layers, each name once.
func (l layers) ReadDir(name string) ([]fs.DirEntry, error) {
	var out []fs.DirEntry
	seen := map[string]bool{}
	found := false
	for _, layer := range l {
		entries, err := fs.ReadDir(layer, name)
		if err != nil {
			continue
		}
		found = true
		for _, e := range entries {
			if !seen[e.Name()] {
				seen[e.Name()] = true
				out = append(out, e)
			}
		}
	}
	if !found {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int {
		if a.Name() < b.Name() {
			return -1
		}
		return 1
	})
	return out, nil
}
