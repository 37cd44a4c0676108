package envd

import (
	"context"
	"errors"
	"slices"

	pb "github.com/dsec-platform/dsec/gen/filesystem"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// filesystem serves filesystem.Filesystem.
type filesystem struct{ *Handler }

// A listing is one message: what has more must be listed in parts.
const (
	maxEntries   = 100_000
	maxListing   = 32 << 20 // bytes of names and the like
	maxListDepth = 256
	// maxListings bounds what all large listings hold at a time, several times which is in memory.
	maxListings  = 256 << 20
	smallListing = 1 << 20 // is not counted
	entryCost    = 256     // beside its names
)

// files gives the guest, and a context in which it acts for the request's user.
func (f *filesystem) files(ctx context.Context) (context.Context, guestAPI, func(), error) {
	user, err := userOf(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	s := sandboxOf(ctx)
	g, release, err := s.guest(ctx)
	return onBehalf(ctx, user), g, release, err
}

func (f *filesystem) Stat(ctx context.Context, q *pb.StatRequest) (*pb.StatResponse, error) {
	if err := checkPath("path", q.GetPath()); err != nil {
		return nil, err
	}
	ctx, g, release, err := f.files(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	info, err := g.Stat(ctx, orHome(q.GetPath()), false)
	if err != nil {
		return nil, err
	}
	return &pb.StatResponse{Entry: entry(info)}, nil
}

// MakeDir tells a directory that is there by already_exists.
func (f *filesystem) MakeDir(ctx context.Context, q *pb.MakeDirRequest) (*pb.MakeDirResponse, error) {
	if err := checkPath("path", q.GetPath()); err != nil {
		return nil, err
	}
	ctx, g, release, err := f.files(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	path := orHome(q.GetPath())
	switch info, err := g.Stat(ctx, path, true); {
	case err == nil && info.Type == guestproto.TypeDir:
		return nil, errdefs.Userf(errdefs.AlreadyExists, "path "+e2b.Clip(info.Path), "use it", "the directory is there already")
	case err == nil:
		return nil, bad("path "+e2b.Clip(info.Path), "use another name", "it is there, and is not a directory")
	case !errors.Is(err, errdefs.ErrNotFound):
		return nil, err
	}
	if err := g.Mkdir(ctx, "", path, "", 0o755, true); err != nil {
		return nil, err
	}
	info, err := g.Stat(ctx, path, false)
	if err != nil {
		return nil, err
	}
	return &pb.MakeDirResponse{Entry: entry(info)}, nil
}

// Move replaces what has the new name, and makes the directories on its way.
func (f *filesystem) Move(ctx context.Context, q *pb.MoveRequest) (*pb.MoveResponse, error) {
	for name, p := range map[string]string{"source": q.GetSource(), "destination": q.GetDestination()} {
		if p == "" {
			return nil, bad(name, "give a path", "it is empty")
		}
		if err := checkPath(name, p); err != nil {
			return nil, err
		}
	}
	ctx, g, release, err := f.files(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := g.Stat(ctx, q.GetSource(), false); err != nil { // before directories are made for it
		return nil, err
	}
	if err := g.Move(ctx, "", q.GetSource(), q.GetDestination(), "", true); err != nil {
		return nil, err
	}
	info, err := g.Stat(ctx, q.GetDestination(), false)
	if err != nil {
		return nil, err
	}
	return &pb.MoveResponse{Entry: entry(info)}, nil
}

func (f *filesystem) ListDir(ctx context.Context, q *pb.ListDirRequest) (*pb.ListDirResponse, error) {
	if err := checkPath("path", q.GetPath()); err != nil {
		return nil, err
	}
	ctx, g, release, err := f.files(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	out := &pb.ListDirResponse{}
	depth, size, held := int(min(max(q.GetDepth(), 1), maxListDepth)), 0, int64(0)
	defer func() { f.listings.Add(-held) }()
	err = g.ListDir(ctx, orHome(q.GetPath()), depth, func(info guestproto.FileInfo) error {
		n := len(info.Path) + len(info.LeadsTo)
		for _, a := range info.Attrs {
			n += len(a)
		}
		if size += n; size+len(out.Entries)*entryCost > smallListing {
			held += int64(n + entryCost)
			if f.listings.Add(int64(n+entryCost)) > maxListings {
				return errdefs.Limitf(errdefs.RateLimited, "path "+e2b.Clip(q.GetPath()), "list it again later, or parts of it", "too many large directories are being listed")
			}
		}
		if len(out.Entries) == maxEntries || size > maxListing {
			return errdefs.Limitf(errdefs.TooLarge, "path "+e2b.Clip(q.GetPath()), "list parts of it", "there are more files than one answer takes")
		}
		out.Entries = append(out.Entries, entry(&info))
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out.Entries, byPath)
	return out, nil
}

func (f *filesystem) Remove(ctx context.Context, q *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	if q.GetPath() == "" {
		return nil, bad("path", "give a path", "it is empty")
	}
	if err := checkPath("path", q.GetPath()); err != nil {
		return nil, err
	}
	ctx, g, release, err := f.files(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := g.Remove(ctx, "", q.GetPath(), "", true); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return nil, err
	}
	return &pb.RemoveResponse{}, nil
}
