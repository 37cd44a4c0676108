// Package layer keeps immutable file trees by the digest of their content, on
// this node's disk, and makes them from tar streams and directories that nobody
// needs to trust.
//
// A layer is one directory of an overlay stack. Ids and modes on disk are the
// container's own (uid 0 is the box's root); whiteouts are 0:0 character devices
// and opaque directories carry trusted.overlay.opaque, the form that overlay
// itself writes. It is stored as a plain directory or as an EROFS image; its digest
// is over the content alone, so both forms, and every node, agree on it.
//
// On disk, below the store's directory:
//
//	sha256/<hex>/meta.json       what it is
//	sha256/<hex>/tree | image.erofs
//	keys/<hex>.json              "this input gives that layer": skips repeated work
//	tmp/<random>/                half-made, locked by its maker, removed at Open
//	lock                         shared: somebody builds on layers; exclusive: collection
package layer

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer/filelock"
	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
)

// Format is how a layer is stored.
type Format string

const (
	Dir   Format = "dir"
	EROFS Format = "erofs"
)

// Info is one stored layer.
type Info struct {
	Version int       `json:"version"` // of this record
	Digest  string    `json:"digest"`  // "sha256:<hex>"
	Format  Format    `json:"format"`
	Size    int64     `json:"size"`    // bytes on disk, about
	Entries int       `json:"entries"` // files, directories, links
	Created time.Time `json:"created"`
	Path    string    `json:"-"` // absolute: a directory or an EROFS image
}

const infoVersion = 1

// Options of a store. The zero value is ready to use.
type Options struct {
	// Format that new layers get; empty: EROFS where this kernel mounts it from
	// a file (probed by mounting one), else directories.
	Format Format
	Limits Limits // zero fields mean DefaultLimits
	Log    *slog.Logger
}

// Store is the layers of one node. All methods are safe for concurrent use, and
// several processes may share the directory.
type Store struct {
	dir    string
	opts   Options
	format func() Format
}

// Open opens the store in dir, making it if needed, and removes what writers
// that died left half-made.
func Open(dir string, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Limits = o.Limits.withDefaults()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{dir, filepath.Join(dir, "sha256"), filepath.Join(dir, "keys"), filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "layer store "+dir, "cannot be made: %w", err)
		}
	}
	s := &Store{dir: dir, opts: o}
	s.format = sync.OnceValue(s.probeFormat)
	s.sweep()
	return s, nil
}

func (s *Store) probeFormat() Format {
	if s.opts.Format != "" {
		return s.opts.Format
	}
	st, err := s.stage()
	if err == nil {
		err = ProbeEROFS(st.dir)
		st.Close()
	}
	if err != nil {
		s.opts.Log.Info("layers are kept as directories", "why", err)
		return Dir
	}
	return EROFS
}

// Format is what new layers are stored as.
func (s *Store) Format() Format { return s.format() }

// Get gives the layer of a digest; NotFound when this node does not have it.
func (s *Store) Get(digest string) (Info, error) {
	hexDigest, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hexDigest) != 64 || strings.Trim(hexDigest, "0123456789abcdef") != "" {
		return Info{}, errdefs.Userf(errdefs.InvalidArgument, "layer "+digest, "give sha256:<64 hex digits>", "not a layer digest")
	}
	return s.load(hexDigest)
}

func (s *Store) load(hexDigest string) (Info, error) {
	dir := filepath.Join(s.dir, "sha256", hexDigest)
	var in Info
	err := jsonfile.Read(filepath.Join(dir, "meta.json"), &in)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return in, errdefs.Userf(errdefs.NotFound, "layer sha256:"+hexDigest, "import its template again", "this node does not have it")
	case err != nil:
		return in, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "layer sha256:"+hexDigest, "its record cannot be read: %w", err)
	case in.Version > infoVersion:
		return in, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unsupported, "layer "+in.Digest, "written by a newer release (record version %d)", in.Version)
	}
	in.Path = filepath.Join(dir, fileOf(in.Format))
	return in, nil
}

func fileOf(f Format) string {
	if f == EROFS {
		return "image.erofs"
	}
	return "tree"
}

// List gives every layer, in no order.
func (s *Store) List() ([]Info, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "sha256"))
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, e := range entries {
		if in, err := s.load(e.Name()); err == nil {
			out = append(out, in)
		}
	}
	return out, nil
}

// Hold keeps Collect away until release: a caller that writes layers and then
// refers to them holds the store for that long.
func (s *Store) Hold() (release func(), err error) {
	l, err := filelock.Shared(filepath.Join(s.dir, "lock"))
	if err != nil {
		return nil, err
	}
	return func() { l.Close() }, nil
}

// Collect removes every layer that neither used names nor a key keeps, and the keys
// that lead to it. used is asked while nobody writes. It does nothing and reports done =
// false when somebody holds the store; the next call catches up.
func (s *Store) Collect(used func() (map[string]bool, error)) (removed []string, done bool, err error) {
	l, err := filelock.TryExclusive(filepath.Join(s.dir, "lock"))
	if errors.Is(err, filelock.ErrLocked) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer l.Close()
	keep, err := used()
	if err != nil {
		return nil, false, err
	}
	kept, err := s.kept(time.Now())
	if err != nil {
		return nil, false, err
	}
	all, err := s.List()
	if err != nil {
		return nil, false, err
	}
	for _, in := range all {
		if keep[in.Digest] || kept[in.Digest] {
			continue
		}
		if err := s.remove(in.Digest); err != nil {
			return removed, false, err
		}
		removed = append(removed, in.Digest)
	}
	return removed, true, s.dropKeys()
}

// Remove deletes one layer. The caller holds the store and knows that nobody
// refers to it.
func (s *Store) Remove(digest string) error {
	if _, err := s.Get(digest); err != nil {
		return err
	}
	return s.remove(digest)
}

// remove takes the layer out of the store in one step, then deletes it.
func (s *Store) remove(digest string) error {
	st, err := s.stage()
	if err != nil {
		return err
	}
	defer st.Close()
	old := filepath.Join(s.dir, "sha256", strings.TrimPrefix(digest, "sha256:"))
	if err := os.Rename(old, filepath.Join(st.dir, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
