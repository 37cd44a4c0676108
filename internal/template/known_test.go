package template

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
)

// A manifest is read once, and again when its file is another one; one that is gone is not known.
func TestManifestsAreReadAgainWhenTheyChange(t *testing.T) {
	s := &Local{}
	path := filepath.Join(t.TempDir(), "0a.json")
	write := func(created string) {
		t.Helper()
		if err := jsonfile.Write(path, &manifest{ManifestVersion: manifestVersion, Name: "t", Version: "0a", Source: created}, false); err != nil {
			t.Fatal(err)
		}
	}
	want := func(source string) *known {
		t.Helper()
		k, err := s.recall(path)
		if err != nil || k.m.Source != source {
			t.Fatalf("%+v, %v; want %s", k, err, source)
		}
		return k
	}
	write("one")
	if first := want("one"); want("one") != first {
		t.Error("it was read twice")
	}
	write("two")
	want("two")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.recall(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
	write("three")
	want("three")
}
