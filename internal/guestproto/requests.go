package guestproto

// Kind says what a stream is for: it is the first thing of an OPEN frame. A
// number is never reused.
type Kind uint32

const (
	KindExec       Kind = 1 // ExecOpen [+ stdin DATA] → ExecEvent…
	KindAttach     Kind = 2 // OpRequest → ExecEvent…
	KindGet        Kind = 3 // OpRequest → OpInfo
	KindList       Kind = 4 // → OpInfo…
	KindStdin      Kind = 5 // OpRequest → Reply{N: next offset}
	KindResize     Kind = 6 // OpRequest → Reply
	KindSignal     Kind = 7 // OpRequest → Reply
	KindCloseShell Kind = 8 // OpRequest{Name} → Reply
	KindDial       Kind = 9 // DialRequest → Reply, then DATA both ways

	// File kinds carry a FileRequest and are served by the worker inside the box.
	KindFileStat   Kind = 16 // → FileInfo
	KindFileList   Kind = 17 // → FileInfo…
	KindFileRead   Kind = 18 // → FileInfo, then DATA
	KindFileWrite  Kind = 19 // + DATA → FileInfo
	KindFileMkdir  Kind = 20 // → Reply
	KindFileMove   Kind = 21 // → Reply
	KindFileRemove Kind = 22 // → Reply
	KindFileLink   Kind = 23 // → Reply
	KindFileChmod  Kind = 24 // → Reply
	KindFileWatch  Kind = 25 // → Reply once watching, then WatchEvent…
	KindFileTarOut Kind = 26 // → Reply, then DATA
	KindFileTarIn  Kind = 27 // + DATA → Reply{N: entries}
)

// File tells whether k is served by the file worker.
func (k Kind) File() bool { return k >= KindFileStat && k <= KindFileTarIn }

// ExecOpen opens a KindExec stream.
type ExecOpen struct {
	Req ExecRequest
	// Digest of the whole request, stdin included; the op id is bound to it.
	Digest []byte
	// Follow sends events as they come; otherwise all are sent at the op's end.
	Follow bool
	// StdinFollows is the number of bytes that follow as DATA instead of Req.Stdin.
	StdinFollows int64
}

// OpRequest is about an op that exists, or a shell session (Name).
type OpRequest struct {
	OpID         OpID
	Name         string
	Offset       int64 // stdin; stdout of an attach, FromNow: what comes from now on
	StderrOffset int64
	Data         []byte
	EOF          bool
	Rows, Cols   uint16
	Signal       string
	Tree         bool
}

// FromNow as the offset of an attach stands for the end of what there is.
const FromNow = -1

// DialRequest connects inside the box.
type DialRequest struct{ Network, Addr string }

// Reply says done; N is what the kind says.
type Reply struct{ N int64 }

// FileRequest opens a stream of a file kind; each kind uses the fields that it
// needs (see guestclient.API for their meaning).
type FileRequest struct {
	OpID   OpID
	Path   string // of tar and watch: the directory
	To     string // move: the new name; link: the target
	User   string // filled in by the guest when empty
	Offset int64
	Length int64 // -1: to the end
	Size   int64 // announced, -1: unknown
	Depth  uint32
	Mode   uint32
	Owner  string
	// SetMode and SetOwner tell a chmod what to change.
	SetMode, SetOwner                 bool
	Follow, Parents, Append, NoCreate bool
	Recursive, Overwrite, Symbolic    bool
	// Behalf: act with the power of the box's root, but for the user: relative paths begin at their
	// home, what is new is theirs, paths in answers are absolute. A write goes into the file
	// itself, as a program's would, and the file becomes theirs; a move makes missing directories.
	Behalf bool
	// AttrPrefix makes a request on behalf tell of the extended attributes below it, and a write
	// replace them by Attrs, each "name=value" without the prefix.
	AttrPrefix string
	Attrs      []string
	// Digest of the request, set for ops with an id.
	Digest []byte
}
