// Package secretfile keeps secrets that are made once, in files of their own that their owner alone can read.
package secretfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Read gives the content of a file. Where there is none, fresh gives what is put there, whole or not at all and
// safe from a power cut: an empty key is one with which nothing starts. Processes that do so at the same time get the same.
func Read(path string, fresh func() ([]byte, error)) ([]byte, error) {
	data, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	if data, err = fresh(); err != nil {
		return nil, err
	}
	if err := create(path, data); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path) // ours, or of who was faster
}

func create(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // for its owner alone
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
