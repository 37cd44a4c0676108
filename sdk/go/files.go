package dsec

import (
	"context"
	"errors"
	"io"
	"iter"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// Stat describes a file; with follow what a symbolic link points to.
func (s *Session) Stat(ctx context.Context, path string, follow bool) (*FileInfo, error) {
	q := &dsecv1.StatRequest{SessionId: s.id, Follow: follow}
	q.Path, q.PathBytes = text(path)
	r, err := call(ctx, s.c, true, s.c.Files.Stat, q)
	return r.GetInfo(), err
}

// ListDir gives the entries below a directory down to depth levels, in the
// directory's order. It ends after the first error.
func (s *Session) ListDir(ctx context.Context, path string, depth int) iter.Seq2[*FileInfo, error] {
	return func(yield func(*FileInfo, error) bool) {
		q := &dsecv1.ListDirRequest{SessionId: s.id, Depth: int32(depth)}
		q.Path, q.PathBytes = text(path)
		stream, err := s.c.Files.ListDir(ctx, q)
		if err != nil {
			yield(nil, AsError(err))
			return
		}
		defer stream.Close()
		for {
			batch, err := stream.Receive()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, AsError(err))
				return
			}
			for _, e := range batch.GetEntries() {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// MakeDir makes a directory and, with parents, what is missing above it.
func (s *Session) MakeDir(ctx context.Context, path string, mode uint32, parents bool) error {
	q := &dsecv1.MakeDirRequest{SessionId: s.id, OpId: newOpID(), Mode: mode, Parents: parents}
	q.Path, q.PathBytes = text(path)
	_, err := call(ctx, s.c, true, s.c.Files.MakeDir, q)
	return err
}

// Move renames a file or directory; overwrite replaces what has the new name.
func (s *Session) Move(ctx context.Context, from, to string, overwrite bool) error {
	q := &dsecv1.MoveRequest{SessionId: s.id, OpId: newOpID(), Overwrite: overwrite}
	q.From, q.FromBytes = text(from)
	q.To, q.ToBytes = text(to)
	_, err := call(ctx, s.c, true, s.c.Files.Move, q)
	return err
}

// Remove deletes a file or directory; recursive with everything below.
func (s *Session) Remove(ctx context.Context, path string, recursive bool) error {
	q := &dsecv1.RemoveRequest{SessionId: s.id, OpId: newOpID(), Recursive: recursive}
	q.Path, q.PathBytes = text(path)
	_, err := call(ctx, s.c, true, s.c.Files.Remove, q)
	return err
}

// Link makes a link at path to target.
func (s *Session) Link(ctx context.Context, target, path string, symbolic bool) error {
	q := &dsecv1.LinkRequest{SessionId: s.id, OpId: newOpID(), Symbolic: symbolic}
	q.Target, q.TargetBytes = text(target)
	q.Path, q.PathBytes = text(path)
	_, err := call(ctx, s.c, true, s.c.Files.Link, q)
	return err
}

// Chmod changes a file's mode and, unless empty, its owner ("user" or "user:group").
func (s *Session) Chmod(ctx context.Context, path string, mode *uint32, owner string, recursive bool) error {
	q := &dsecv1.ChmodRequest{SessionId: s.id, OpId: newOpID(), Mode: mode, Recursive: recursive}
	if owner != "" {
		q.Owner = &owner
	}
	q.Path, q.PathBytes = text(path)
	_, err := call(ctx, s.c, true, s.c.Files.Chmod, q)
	return err
}

// Watch gives the changes below a directory until ctx ends or the loop is left.
func (s *Session) Watch(ctx context.Context, path string, recursive bool) iter.Seq2[*FileChange, error] {
	return func(yield func(*FileChange, error) bool) {
		q := &dsecv1.WatchRequest{SessionId: s.id, Recursive: recursive}
		q.Path, q.PathBytes = text(path)
		stream, err := s.c.Files.Watch(ctx, q)
		if err != nil {
			yield(nil, AsError(err))
			return
		}
		defer stream.Close()
		for {
			ev, err := stream.Receive()
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(nil, AsError(err))
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}
