package api

import (
	"context"
	"errors"
	"io"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// files serves FileService; bytes go by plain HTTP, in bytes.go.
type files struct{ *API }

// listBatch is how many entries a message of ListDir carries.
const listBatch = 256

func (f *files) Stat(ctx context.Context, q *dsecv1.StatRequest) (*dsecv1.StatResponse, error) {
	path, err := checkPath("path", q.GetPath(), q.GetPathBytes())
	if err != nil {
		return nil, err
	}
	g, release, err := f.guest(ctx, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	info, err := g.Stat(ctx, path, q.GetFollow())
	if err != nil {
		return nil, err
	}
	return &dsecv1.StatResponse{Info: wireFile(info)}, nil
}

func (f *files) ListDir(ctx context.Context, q *dsecv1.ListDirRequest, out dsecv1connect.FileServiceListDirServerStream) error {
	path, err := checkPath("path", q.GetPath(), q.GetPathBytes())
	if err != nil {
		return err
	}
	if q.GetDepth() < 0 || q.GetDepth() > 64 {
		return bad("depth", "use 1 to 64", "is %d", q.GetDepth())
	}
	g, release, err := f.guest(ctx, q.GetSessionId())
	if err != nil {
		return err
	}
	defer release()
	batch := &dsecv1.ListDirResponse{}
	err = g.ListDir(ctx, path, max(int(q.GetDepth()), 1), func(info guestproto.FileInfo) error {
		batch.Entries = append(batch.Entries, wireFile(&info))
		if len(batch.Entries) < listBatch {
			return nil
		}
		err := out.Send(batch)
		batch = &dsecv1.ListDirResponse{}
		return err
	})
	if err != nil {
		return err
	}
	if len(batch.Entries) == 0 {
		return nil
	}
	return out.Send(batch)
}

func (f *files) MakeDir(ctx context.Context, q *dsecv1.MakeDirRequest) (*dsecv1.MakeDirResponse, error) {
	path, err := checkPath("path", q.GetPath(), q.GetPathBytes())
	if err != nil {
		return nil, err
	}
	mode := q.GetMode()
	if mode == 0 {
		mode = 0o755
	}
	if err := checkMode("mode", mode); err != nil {
		return nil, err
	}
	return &dsecv1.MakeDirResponse{}, f.change(ctx, q.GetSessionId(), q.GetOpId(), q.GetUser(), func(g guestclient.API, op string) error {
		return g.Mkdir(ctx, op, path, q.GetUser(), mode, q.GetParents())
	})
}

func (f *files) Move(ctx context.Context, q *dsecv1.MoveRequest) (*dsecv1.MoveResponse, error) {
	from, err := checkPath("from", q.GetFrom(), q.GetFromBytes())
	if err != nil {
		return nil, err
	}
	to, err := checkPath("to", q.GetTo(), q.GetToBytes())
	if err != nil {
		return nil, err
	}
	return &dsecv1.MoveResponse{}, f.change(ctx, q.GetSessionId(), q.GetOpId(), q.GetUser(), func(g guestclient.API, op string) error {
		return g.Move(ctx, op, from, to, q.GetUser(), q.GetOverwrite())
	})
}

func (f *files) Remove(ctx context.Context, q *dsecv1.RemoveRequest) (*dsecv1.RemoveResponse, error) {
	path, err := checkPath("path", q.GetPath(), q.GetPathBytes())
	if err != nil {
		return nil, err
	}
	return &dsecv1.RemoveResponse{}, f.change(ctx, q.GetSessionId(), q.GetOpId(), q.GetUser(), func(g guestclient.API, op string) error {
		return g.Remove(ctx, op, path, q.GetUser(), q.GetRecursive())
	})
}

func (f *files) Link(ctx context.Context, q *dsecv1.LinkRequest) (*dsecv1.LinkResponse, error) {
	path, err := checkPath("path", q.GetPath(), q.GetPathBytes())
	if err != nil {
		return nil, err
	}
	// A symbolic link's target is text, not resolved here: a relative one stays relative.
	target := q.GetTarget()
	if len(q.GetTargetBytes()) > 0 && target == "" {
		target = string(q.GetTargetBytes())
	}
	resolved, err := checkPath("target", q.GetTarget(), q.GetTargetBytes())
	if err != nil {
		return nil, err
	}
	if !q.GetSymbolic() {
		target = resolved
	}
	return &dsecv1.LinkResponse{}, f.change(ctx, q.GetSessionId(), q.GetOpId(), q.GetUser(), func(g guestclient.API, op string) error {
		return g.Link(ctx, op, target, path, q.GetUser(), q.GetSymbolic())
	})
}

func (f *files) Chmod(ctx context.Context, q *dsecv1.ChmodRequest) (*dsecv1.ChmodResponse, error) {
	path, err := checkPath("path", q.GetPath(), q.GetPathBytes())
	if err != nil {
		return nil, err
	}
	if q.Mode == nil && q.Owner == nil {
		return nil, bad("mode", "give mode, owner or both", "neither mode nor owner is given")
	}
	if err := checkMode("mode", q.GetMode()); err != nil {
		return nil, err
	}
	if err := checkText("owner", q.GetOwner(), 65); err != nil {
		return nil, err
	}
	o := guestclient.ChmodOptions{Mode: q.Mode, Owner: q.Owner, Recursive: q.GetRecursive()}
	return &dsecv1.ChmodResponse{}, f.change(ctx, q.GetSessionId(), q.GetOpId(), q.GetUser(), func(g guestclient.API, op string) error {
		return g.Chmod(ctx, op, path, q.GetUser(), o)
	})
}

func (f *files) Watch(ctx context.Context, q *dsecv1.WatchRequest, out dsecv1connect.FileServiceWatchServerStream) error {
	path, err := checkPath("path", q.GetPath(), q.GetPathBytes())
	if err == nil {
		err = checkUser("user", q.GetUser())
	}
	if err != nil {
		return err
	}
	g, release, err := f.guest(ctx, q.GetSessionId())
	if err != nil {
		return err
	}
	defer release()
	w, err := g.Watch(ctx, path, q.GetUser(), q.GetRecursive())
	if err != nil {
		return err
	}
	defer w.Close()
	defer context.AfterFunc(ctx, func() { w.Close() })()
	if err := out.SendHeaders(); err != nil { // the client now knows that nothing will be missed
		return err
	}
	for {
		ev, err := w.Recv()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		m := &dsecv1.WatchResponse{Kind: ev.Kind, Overflow: ev.Overflow}
		m.Path, m.PathBytes = wireName(ev.Path)
		if err := out.Send(m); err != nil {
			return err
		}
	}
}

// change runs one mutating operation.
func (f *files) change(ctx context.Context, session, op, user string, do func(guestclient.API, string) error) error {
	op, _, err := opID(op)
	if err != nil {
		return err
	}
	if err := checkUser("user", user); err != nil {
		return err
	}
	g, release, err := f.guest(ctx, session)
	if err != nil {
		return err
	}
	defer release()
	return do(g, op)
}

func checkMode(field string, mode uint32) error {
	if mode > 0o7777 {
		return bad(field, "use permission, set-id and sticky bits, at most 4095 (07777)", "is %d", mode)
	}
	return nil
}
