package keyed_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dsec-platform/dsec/internal/keyed"
)

func TestKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, keyed.Name)
	var wg sync.WaitGroup
	sums := make([]string, 8)
	for i := range sums {
		wg.Go(func() {
			if k, err := keyed.Open(path); err == nil {
				sums[i] = k.Sum([]byte("a"))
			}
		})
	}
	wg.Wait()
	for _, s := range sums {
		if s == "" || s != sums[0] {
			t.Fatalf("processes that open it together have several: %q", sums)
		}
	}
	if in, err := os.Stat(path); err != nil || in.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", in, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v", left)
	}
	k := keyed.New()
	sum := k.Sum([]byte("a"))
	if again := k.Sum([]byte("a")); again != sum {
		t.Errorf("not the same again: %q and %q", sum, again)
	}
	if sum == keyed.New().Sum([]byte("a")) || k.Sum([]byte("a"), []byte("b")) == k.Sum([]byte("ab")) {
		t.Error("key or parts do not matter")
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keyed.Open(path); err == nil {
		t.Error("a damaged key was taken")
	}
	lost := filepath.Join(dir, "lost")
	if err := os.Symlink("nowhere", lost); err != nil {
		t.Fatal(err)
	}
	if _, err := keyed.Open(lost); err == nil {
		t.Error("a link that leads nowhere is no key")
	}
}
