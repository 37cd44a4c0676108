// Package guestclient is the node's end of the guest protocol: it multiplexes
// execs, files, dials and watches over one byte stream to a box's guest, and
// treats every byte from it as hostile.
package guestclient

import (
	"context"
	"io"
	"net"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// API is what the node and the API handlers use of a guest. *Client implements
// it; every method is safe for concurrent use, ends when ctx does, and returns
// *errdefs.Error: class policy (box_tampered) when the guest dies, stalls or breaks the
// protocol, class user or limit when the request is at fault, never infrastructure.
type API interface {
	Hello() guestproto.Hello

	// Run starts (or, by op id, attaches to) an exec and waits for its end.
	Run(ctx context.Context, req guestproto.ExecRequest) (*guestproto.Result, error)
	// Start starts an exec and attaches to it; Close of the stream detaches, it does not kill.
	Start(ctx context.Context, req guestproto.ExecRequest) (ExecStream, error)
	// Attach follows an op from the given offsets (guestproto.FromNow: what comes later), running or ended.
	Attach(ctx context.Context, op guestproto.OpID, stdoutOffset, stderrOffset int64) (ExecStream, error)
	// Get gives an op's state without its output.
	Get(ctx context.Context, op guestproto.OpID) (*guestproto.OpInfo, error)
	List(ctx context.Context) ([]guestproto.OpInfo, error)
	// WriteStdin appends to a StdinStream op; offset makes a retry safe (bytes already taken are skipped).
	WriteStdin(ctx context.Context, op guestproto.OpID, offset int64, data []byte, eof bool) (next int64, err error)
	Resize(ctx context.Context, op guestproto.OpID, rows, cols uint16) error
	// Signal sends to the op's process group, or with tree to every process of the op.
	Signal(ctx context.Context, op guestproto.OpID, signal string, tree bool) error
	CloseShell(ctx context.Context, shellSession string) error

	Stat(ctx context.Context, path string, follow bool) (*guestproto.FileInfo, error)
	// ListDir calls fn for each entry, in directory order, until it returns an error.
	ListDir(ctx context.Context, path string, depth int, fn func(guestproto.FileInfo) error) error
	// ReadFile streams length bytes (-1: to the end) from offset. The info is of the open file.
	ReadFile(ctx context.Context, path, user string, offset, length int64) (*guestproto.FileInfo, io.ReadCloser, error)
	// WriteFile streams r into path; atomically (temporary name, then rename) unless append.
	WriteFile(ctx context.Context, o WriteOptions, r io.Reader) (*guestproto.FileInfo, error)
	Mkdir(ctx context.Context, op guestproto.OpID, path, user string, mode uint32, parents bool) error
	Move(ctx context.Context, op guestproto.OpID, from, to, user string, overwrite bool) error
	Remove(ctx context.Context, op guestproto.OpID, path, user string, recursive bool) error
	Link(ctx context.Context, op guestproto.OpID, target, path, user string, symbolic bool) error
	Chmod(ctx context.Context, op guestproto.OpID, path, user string, o ChmodOptions) error
	Watch(ctx context.Context, path, user string, recursive bool) (Watcher, error)
	// TarOut streams the tree below path as a tar; names in it are relative to path.
	TarOut(ctx context.Context, path, user string) (io.ReadCloser, error)
	// TarIn unpacks a tar below path (made if absent) and gives the number of entries.
	TarIn(ctx context.Context, op guestproto.OpID, path, user string, r io.Reader) (int64, error)

	// Dial connects inside the box: network tcp, tcp4, tcp6 or unix.
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
	// Ping answers when the guest is alive and reading.
	Ping(ctx context.Context) error
	Close() error
	// Done is closed when the connection is lost.
	Done() <-chan struct{}
}

// ExecStream follows one exec.
type ExecStream interface {
	OpID() guestproto.OpID
	// Recv gives the next event; io.EOF after EventExit. Data is valid until the next call.
	Recv() (guestproto.ExecEvent, error)
	Close() error
}

// Watcher follows a directory.
type Watcher interface {
	Recv() (guestproto.WatchEvent, error)
	Close() error
}

// WriteOptions of WriteFile.
type WriteOptions struct {
	OpID     guestproto.OpID
	Path     string
	User     string // owner of a new file; default the box's user
	Mode     uint32 // of a new file; 0: 0644
	Parents  bool   // make missing parent directories
	Append   bool
	Size     int64 // announced size, -1 unknown; refused early when it cannot fit
	Offset   int64 // with Append: position that a retry must match
	NoCreate bool
	Attrs    []string // "name=value", below Behalf.AttrPrefix
}

// ChmodOptions of Chmod: nil fields stay.
type ChmodOptions struct {
	Mode      *uint32
	Owner     *string // "user", "user:group", numeric or names
	Recursive bool
}
