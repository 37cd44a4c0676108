package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Current says why a binary that tests are about to drive is not that of the source tree: it is not there, or a
// source is newer. One that DSEC_TEST_BINARY names is taken as it is. The tree is the one that the working directory is in.
func Current(binary string) error {
	st, err := os.Stat(binary)
	if err != nil {
		return fmt.Errorf("%w: run make build", err)
	}
	if os.Getenv("DSEC_TEST_BINARY") == binary {
		return nil
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return errors.New("no go.mod is above the working directory: name the binary with DSEC_TEST_BINARY")
		}
		root = filepath.Dir(root)
	}
	newer, err := newerSource(root, st.ModTime())
	if err == nil && newer != "" {
		err = fmt.Errorf("%s is older than %s: run make build", binary, newer)
	}
	return err
}

// newerSource gives a file below root that the binary is made of and that has changed since t; "" for none.
func newerSource(root string, t time.Time) (newer string, err error) {
	for _, top := range []string{"go.mod", "cmd", "internal", "gen", "sdk/go"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			name := d.Name()
			switch {
			case err != nil:
				return err
			case d.IsDir() && (name == "testdata" || strings.HasPrefix(name, ".")):
				return fs.SkipDir
			// The embedded programs are made of the sources, by more than one target.
			case d.IsDir(), strings.HasSuffix(name, "_test.go"), strings.HasSuffix(name, ".bin"), strings.HasSuffix(name, ".md"):
				return nil
			}
			if in, err := d.Info(); err == nil && in.ModTime().After(t) { // one that is gone meanwhile is no source
				newer, _ = filepath.Rel(root, path)
				return fs.SkipAll
			}
			return nil
		})
		if err != nil || newer != "" {
			return newer, err
		}
	}
	return "", nil
}
