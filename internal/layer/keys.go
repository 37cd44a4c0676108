package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
)

// Key is the record that an input, named by any string, gave a layer.
type Key struct {
	Version int       `json:"version"`
	Key     string    `json:"key"`
	Layer   string    `json:"layer"`
	Created time.Time `json:"created"`
	// Until then Collect keeps the layer, and those below it in With, though
	// nobody refers to them.
	Until time.Time `json:"until,omitzero"`
	With  []string  `json:"with,omitempty"`
}

func (s *Store) keyPath(k string) string {
	sum := sha256.Sum256([]byte(k))
	return filepath.Join(s.dir, "keys", hex.EncodeToString(sum[:])+".json")
}

// ByKey gives the layer of a key and the key; ok is false when there is none any
// more.
func (s *Store) ByKey(k string) (in Info, rec Key, ok bool) {
	if k == "" || jsonfile.Read(s.keyPath(k), &rec) != nil || rec.Key != k {
		return Info{}, Key{}, false
	}
	in, err := s.Get(rec.Layer)
	return in, rec, err == nil
}

// SetKey remembers k. Keys of a removed layer go with it.
func (s *Store) SetKey(k Key) error {
	k.Version = infoVersion
	if k.Created.IsZero() {
		k.Created = time.Now().UTC()
	}
	return jsonfile.Write(s.keyPath(k.Key), k, false)
}

// DropKey forgets a key; one that does not exist is no error.
func (s *Store) DropKey(k string) error {
	err := os.Remove(s.keyPath(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// kept adds the layers that keys keep for now.
func (s *Store) kept(now time.Time) (map[string]bool, error) {
	keep := map[string]bool{}
	err := s.eachKey(func(_ string, k Key) error {
		if now.Before(k.Until) {
			keep[k.Layer] = true
			for _, d := range k.With {
				keep[d] = true
			}
		}
		return nil
	})
	return keep, err
}

// dropKeys removes the keys whose layers are gone.
func (s *Store) dropKeys() error {
	return s.eachKey(func(path string, k Key) error {
		if _, err := s.Get(k.Layer); !errors.Is(err, errdefs.ErrNotFound) {
			return nil
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (s *Store) eachKey(visit func(path string, k Key) error) error {
	dir := filepath.Join(s.dir, "keys")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var k Key
		p := filepath.Join(dir, e.Name())
		if err := jsonfile.Read(p, &k); err != nil {
			continue
		}
		if err := visit(p, k); err != nil {
			return err
		}
	}
	return nil
}
