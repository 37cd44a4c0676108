package envd

import (
	"context"
	"errors"
	"io"
	"path"

	pb "github.com/dsec-platform/dsec/gen/filesystem"
	"github.com/dsec-platform/dsec/gen/filesystem/filesystemconnect"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// A box has no file system of the network but what its operator mounted, and there its own
// changes are seen: allow_network_mounts asks for nothing that is refused without it.

// watch is a directory that is being watched.
type watch struct {
	guestclient.Watcher
	g       guestAPI
	dir     string // absolute
	entries bool   // tell of the file with each event
}

// open begins to watch. The context is for the watch's whole life.
func (f *filesystem) open(ctx context.Context, g guestAPI, dir string, recursive, entries bool) (*watch, error) {
	if err := checkPath("path", dir); err != nil {
		return nil, err
	}
	info, err := g.Stat(ctx, orHome(dir), true)
	if err != nil {
		return nil, err
	}
	if info.Type != guestproto.TypeDir {
		return nil, bad("path "+e2b.Clip(info.Path), "name a directory", "it is not a directory")
	}
	w, err := g.Watch(ctx, info.Path, "", recursive)
	if err != nil {
		return nil, err
	}
	return &watch{w, g, info.Path, entries}, nil
}

var eventTypes = map[string]pb.EventType{
	"create": pb.EventType_EVENT_TYPE_CREATE, "write": pb.EventType_EVENT_TYPE_WRITE, "remove": pb.EventType_EVENT_TYPE_REMOVE,
	"rename": pb.EventType_EVENT_TYPE_RENAME, "chmod": pb.EventType_EVENT_TYPE_CHMOD,
}

// next gives the next change; io.EOF when the directory is gone.
func (w *watch) next(ctx context.Context) (*pb.FilesystemEvent, error) {
	ev, err := w.Recv()
	if err != nil {
		return nil, err
	}
	if ev.Overflow {
		return nil, errdefs.Limitf(errdefs.RateLimited, "path "+e2b.Clip(w.dir), "list the directory, and watch it again", "there were more changes than could be told")
	}
	out := &pb.FilesystemEvent{Name: utf8Text(ev.Path), Type: eventTypes[ev.Kind]}
	if out.Name == "" { // the directory itself
		out.Name = "."
	}
	if w.entries {
		if info, err := w.g.Stat(ctx, path.Join(w.dir, ev.Path), false); err == nil { // gone again, else
			out.Entry = entry(info)
		}
	}
	return out, nil
}

// WatchDir tells of changes until the client goes or the directory does.
func (f *filesystem) WatchDir(ctx context.Context, q *pb.WatchDirRequest, out filesystemconnect.FilesystemWatchDirServerStream) error {
	ctx, g, release, err := f.files(ctx)
	if err != nil {
		return err
	}
	defer release()
	w, err := f.open(ctx, g, q.GetPath(), q.GetRecursive(), q.GetIncludeEntry())
	if err != nil {
		return err
	}
	defer w.Close()
	defer context.AfterFunc(ctx, func() { w.Close() })()
	ping := &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}}
	b := newBeat(pingInterval(ctx), func() error { return out.Send(ping) })
	defer b.stop()
	start := &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}}
	if err := b.send(func() error { return out.Send(start) }); err != nil {
		return err
	}
	for {
		ev, err := w.next(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		m := &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: ev}}
		if err := b.send(func() error { return out.Send(m) }); err != nil {
			return err
		}
	}
}
