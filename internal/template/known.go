package template

import (
	"errors"
	"io/fs"
	"os"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// known is a manifest as it was read, and the root that was made of it. What a version is does not
// change, but it may be removed and imported again: the file tells.
type known struct {
	file fs.FileInfo
	m    *manifest
	root *runtime.Root // nil until a use has asked for it
}

// recall gives the manifest at path, reading it only when it is not the file that was read before. Every create
// without a pinned template asks twice. Errors are those of readManifest.
func (s *Local) recall(path string) (*known, error) {
	file, err := os.Stat(path)
	if err != nil {
		s.known.Delete(path)
		if !errors.Is(err, fs.ErrNotExist) {
			_, err = readManifest(path) // words it
		}
		return nil, err
	}
	if v, ok := s.known.Load(path); ok {
		k := v.(*known)
		if os.SameFile(k.file, file) && k.file.ModTime().Equal(file.ModTime()) && k.file.Size() == file.Size() {
			return k, nil
		}
	}
	m, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	k := &known{file: file, m: m} // of before it was read: a change meanwhile is seen next time
	s.known.Store(path, k)
	return k, nil
}

// rootOf gives the root of a known manifest. Its version is locked: its layers are there.
func (s *Local) rootOf(path string, k *known) (runtime.Root, error) {
	if k.root != nil {
		return *k.root, nil
	}
	root, err := s.root(k.m)
	if err == nil {
		s.known.Store(path, &known{file: k.file, m: k.m, root: &root})
	}
	return root, err
}
