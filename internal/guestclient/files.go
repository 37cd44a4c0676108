package guestclient

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// files is the file half of API, over a connection to a guest.
type files struct{ conn *mux.Conn }

// bind ties a request with an op id to its content: the digest covers all but a stream that follows.
func bind(kind guestproto.Kind, req *guestproto.FileRequest) *guestproto.FileRequest {
	if req.OpID != "" {
		sum := sha256.Sum256(append(guestproto.Marshal(nil, req), byte(kind)))
		req.Digest = sum[:]
	}
	return req
}

// change is a request that is answered with done.
func (f files) change(ctx context.Context, kind guestproto.Kind, req guestproto.FileRequest) error {
	return call(ctx, f.conn, kind, bind(kind, behalf(ctx, &req)), &guestproto.Reply{})
}

func (f files) Stat(ctx context.Context, path string, follow bool) (*guestproto.FileInfo, error) {
	info := &guestproto.FileInfo{}
	if err := call(ctx, f.conn, guestproto.KindFileStat, behalf(ctx, &guestproto.FileRequest{Path: path, Follow: follow}), info); err != nil {
		return nil, err
	}
	return info, nil
}

// ListDir lists depth levels: 0 and 1 are the directory's own entries, a negative depth is all levels.
func (f files) ListDir(ctx context.Context, path string, depth int, fn func(guestproto.FileInfo) error) error {
	if depth < 0 {
		depth = math.MaxInt32
	}
	s, err := openStream(ctx, f.conn, guestproto.KindFileList, behalf(ctx, &guestproto.FileRequest{Path: path, Depth: uint32(min(depth, math.MaxInt32))}), true)
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		var info guestproto.FileInfo
		if err := s.recv(&info); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := fn(info); err != nil {
			return err
		}
	}
}

func (f files) ReadFile(ctx context.Context, path, user string, offset, length int64) (*guestproto.FileInfo, io.ReadCloser, error) {
	req := &guestproto.FileRequest{Path: path, User: user, Offset: offset, Length: length}
	s, err := openStream(ctx, f.conn, guestproto.KindFileRead, behalf(ctx, req), true)
	if err != nil {
		return nil, nil, err
	}
	info := &guestproto.FileInfo{}
	if err := s.answer(info); err != nil {
		s.Close()
		return nil, nil, err
	}
	return info, &content{s, length}, nil
}

// content is a file's data, no more of it than was asked for.
type content struct {
	*stream
	left int64 // -1: no bound
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.stream.Read(p)
	if c.left >= 0 {
		if c.left -= int64(n); c.left < 0 {
			return 0, tampered("the guest sent more of a file than was asked for")
		}
	}
	return n, err
}

func (f files) WriteFile(ctx context.Context, o WriteOptions, r io.Reader) (*guestproto.FileInfo, error) {
	req := &guestproto.FileRequest{OpID: o.OpID, Path: o.Path, User: o.User, Mode: o.Mode, Parents: o.Parents, Append: o.Append, Size: o.Size, Offset: o.Offset, NoCreate: o.NoCreate, Attrs: o.Attrs}
	info := &guestproto.FileInfo{}
	if err := f.upload(ctx, guestproto.KindFileWrite, req, r, info); err != nil {
		return nil, err
	}
	return info, nil
}

// upload sends a request and r, and receives the answer.
func (f files) upload(ctx context.Context, kind guestproto.Kind, req *guestproto.FileRequest, r io.Reader, answer guestproto.Message) error {
	s, err := openStream(ctx, f.conn, kind, bind(kind, behalf(ctx, req)), false)
	if err != nil {
		return err
	}
	defer s.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := s.Write(buf[:n]); werr != nil {
				return s.answer(answer) // given already, or why there is none
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			// Closing without an end makes the guest drop what it has.
			if e, ok := errors.AsType[*errdefs.Error](err); ok {
				return e
			}
			return errdefs.Userf(errdefs.Canceled, "upload", "send it again", "the data could not be read to its end: %w", err)
		}
	}
	// A guest that knows the op's id may have answered without waiting for the data.
	_ = s.s.CloseSend() // a failure shows in the answer
	return s.answer(answer)
}

func (f files) Mkdir(ctx context.Context, op guestproto.OpID, path, user string, mode uint32, parents bool) error {
	return f.change(ctx, guestproto.KindFileMkdir, guestproto.FileRequest{OpID: op, Path: path, User: user, Mode: mode, Parents: parents})
}

func (f files) Move(ctx context.Context, op guestproto.OpID, from, to, user string, overwrite bool) error {
	return f.change(ctx, guestproto.KindFileMove, guestproto.FileRequest{OpID: op, Path: from, To: to, User: user, Overwrite: overwrite})
}

func (f files) Remove(ctx context.Context, op guestproto.OpID, path, user string, recursive bool) error {
	return f.change(ctx, guestproto.KindFileRemove, guestproto.FileRequest{OpID: op, Path: path, User: user, Recursive: recursive})
}

func (f files) Link(ctx context.Context, op guestproto.OpID, target, path, user string, symbolic bool) error {
	return f.change(ctx, guestproto.KindFileLink, guestproto.FileRequest{OpID: op, Path: path, To: target, User: user, Symbolic: symbolic})
}

func (f files) Chmod(ctx context.Context, op guestproto.OpID, path, user string, o ChmodOptions) error {
	req := guestproto.FileRequest{OpID: op, Path: path, User: user, Recursive: o.Recursive}
	if o.Mode != nil {
		req.SetMode, req.Mode = true, *o.Mode
	}
	if o.Owner != nil {
		req.SetOwner, req.Owner = true, *o.Owner
	}
	return f.change(ctx, guestproto.KindFileChmod, req)
}

func (f files) Watch(ctx context.Context, path, user string, recursive bool) (Watcher, error) {
	// The request stays open: its end tells the guest that nobody watches any more.
	s, err := openStream(ctx, f.conn, guestproto.KindFileWatch, behalf(ctx, &guestproto.FileRequest{Path: path, User: user, Recursive: recursive}), false)
	if err != nil {
		return nil, err
	}
	if err := s.answer(&guestproto.Reply{}); err != nil {
		s.Close()
		return nil, err
	}
	return watcher{s}, nil
}

type watcher struct{ *stream }

// Recv gives the next event; io.EOF when the watched directory is gone.
func (w watcher) Recv() (e guestproto.WatchEvent, err error) {
	err = w.recv(&e)
	return e, err
}

func (f files) TarOut(ctx context.Context, path, user string) (io.ReadCloser, error) {
	s, err := openStream(ctx, f.conn, guestproto.KindFileTarOut, behalf(ctx, &guestproto.FileRequest{Path: path, User: user}), true)
	if err != nil {
		return nil, err
	}
	if err := s.answer(&guestproto.Reply{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (f files) TarIn(ctx context.Context, op guestproto.OpID, path, user string, r io.Reader) (int64, error) {
	var reply guestproto.Reply
	if err := f.upload(ctx, guestproto.KindFileTarIn, &guestproto.FileRequest{OpID: op, Path: path, User: user}, r, &reply); err != nil {
		return 0, err
	}
	return reply.N, nil
}
