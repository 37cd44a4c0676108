package store

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestRemoveTreeOfManyNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	for _, sub := range []string{"", "a/b"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range batch + 10 {
			if err := os.WriteFile(filepath.Join(dir, sub, "_"+strconv.Itoa(i)), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := removeTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}
