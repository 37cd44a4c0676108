package layer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
)

// WriteOptions of one layer.
type WriteOptions struct {
	// Format overrides the store's.
	Format Format
	// Whiteouts turns .wh. names into overlay marks: for layers of OCI images.
	Whiteouts bool
	// Overlay keeps overlay's own marks: for a frozen upper directory of one of
	// our boxes. Never for anything made elsewhere.
	Overlay bool
	// NoSync skips the disk flush: for a layer that can be made again at once.
	NoSync bool
}

// Write makes a layer of what fill puts in and publishes it in one step. When
// the store has that content already, it gives the stored one. On an error, and
// when ctx ends, nothing is left. The caller holds the store (Hold) until it has
// referred to the layer.
func (s *Store) Write(ctx context.Context, o WriteOptions, fill func(*Writer) error) (Info, error) {
	st, err := s.stage()
	if err != nil {
		return Info{}, diskError(err)
	}
	defer st.Close()
	if o.Format == "" {
		o.Format = s.Format()
	}
	out := filepath.Join(st.dir, "out")
	root := filepath.Join(out, fileOf(Dir))
	if err := os.MkdirAll(root, 0o700); err != nil {
		return Info{}, diskError(err)
	}
	if err := s.fill(ctx, root, o, fill); err != nil {
		return Info{}, diskError(err)
	}
	in, err := s.seal(ctx, out, o.Format)
	if err != nil {
		return Info{}, diskError(err)
	}
	if old, err := s.Get(in.Digest); err == nil {
		return old, nil
	}
	return s.publish(out, in, !o.NoSync)
}

func (s *Store) fill(ctx context.Context, root string, o WriteOptions, fill func(*Writer) error) error {
	w, err := newWriter(ctx, root, o, s.opts.Limits)
	if err != nil {
		return err
	}
	defer w.tree.Close()
	if err := fill(w); err != nil {
		return err
	}
	if w.Dropped > 0 {
		s.opts.Log.Info("left device nodes and sockets out of a layer", "count", w.Dropped)
	}
	return w.finish()
}

// finish gives directories their attributes, deepest first: without root, a
// directory that its owner cannot enter must come after what is below it.
func (w *Writer) finish() error {
	names := make([]string, 0, len(w.dirs))
	for name := range w.dirs {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	w.tree.forget()
	for _, name := range names {
		if err := w.finishDir(name); err != nil {
			return entryError(name, err)
		}
	}
	return nil
}

func (w *Writer) finishDir(name string) error {
	if name == "" {
		return w.apply(w.tree.root, w.dirs[""])
	}
	f, err := openIn(w.tree.root, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // a later entry took its place
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return w.apply(f, w.dirs[name])
}

// seal computes the digest of out/tree and, for EROFS, packs it in the same pass.
func (s *Store) seal(ctx context.Context, out string, format Format) (Info, error) {
	root := filepath.Join(out, fileOf(Dir))
	in := Info{Version: infoVersion, Format: format, Created: time.Now().UTC()}
	if format == EROFS {
		sum, err := packEROFS(ctx, root, filepath.Join(out, fileOf(EROFS)), filepath.Dir(out))
		switch {
		case errors.Is(err, errUnfit):
			s.opts.Log.Info("a layer stays a directory", "why", err)
			os.Remove(filepath.Join(out, fileOf(EROFS)))
			in.Format = Dir
		case err != nil:
			return in, err
		default:
			in.Digest, in.Size, in.Entries = sum.digest, sum.imageSize, sum.entries
			return in, removeTree(root)
		}
	}
	f, err := os.Open(root)
	if err != nil {
		return in, err
	}
	defer f.Close()
	sum, err := sumTree(ctx, f, nil)
	in.Digest, in.Size, in.Entries = sum.digest, sum.bytes, sum.entries
	return in, err
}

func (s *Store) publish(out string, in Info, durable bool) (Info, error) {
	if err := jsonfile.Write(filepath.Join(out, "meta.json"), in, false); err != nil {
		return in, diskError(err)
	}
	if durable {
		if err := syncFS(out); err != nil {
			return in, diskError(err)
		}
	}
	final := filepath.Join(s.dir, "sha256", strings.TrimPrefix(in.Digest, "sha256:"))
	err := os.Rename(out, final)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return s.Get(in.Digest) // somebody else was first
	}
	if err != nil {
		return in, diskError(err)
	}
	in.Path = filepath.Join(final, fileOf(in.Format))
	return in, nil
}

// syncFS flushes the whole file system: cheaper than one flush a file.
func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// diskError names a full disk as what it is.
func diskError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e := errdefs.Limitf(errdefs.DiskFull, "layer store", "free space under the data directory, or remove templates", "the disk is full: %w", err)
		e.Scope = errdefs.ScopeNode
		return e
	}
	return err
}
