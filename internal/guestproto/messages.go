package guestproto

// OpID names an operation within a box's life: 1 to 64 characters [A-Za-z0-9_-].
// Same id and same request digest → the recorded result or an attachment; other
// digest → idempotency_clash; evicted → op_unknown.
type OpID = string

// StdinMode says what an exec reads from its standard input.
type StdinMode uint8

const (
	StdinNone   StdinMode = iota // EOF at once
	StdinData                    // ExecRequest.Stdin, then EOF
	StdinStream                  // fed by WriteStdin until closed
)

// ExecRequest starts one command. Strings are bytes: arguments, names and
// output need not be UTF-8.
type ExecRequest struct {
	OpID OpID
	// Exactly one of Argv and Script is set. Script is run by Shell (default
	// /bin/bash, else /bin/sh) as `shell -c script`, or inside the shell session.
	Argv   []string
	Script string
	Shell  string
	// ShellSession, if set, runs Script in that named session: its cwd, environment,
	// variables, functions, aliases and options are loaded before and saved after.
	ShellSession string
	Env          []string // added to the box's base environment, "K=V"
	Cwd          string   // absolute, or ~ and ~/… below the user's home; default: /workspace or the home
	User         string   // name or uid in the box; default: the box's user
	StdinMode    StdinMode
	Stdin        []byte
	PTY          bool
	Rows, Cols   uint16
	TimeoutMs    int64 // 0: none. A time-out kills the op's whole process tree.
	// MaxOutput bounds what is kept of each stream (half head, half tail); default 1 MiB, max 64 MiB.
	MaxOutput int64
	// KillOnOutputLimit ends the op (limit: output) when a stream passes MaxOutput; otherwise it is drained.
	KillOnOutputLimit bool
	// Background: Exec returns when the process has started.
	Background bool
	// HoldOutput makes the command wait when its output is more than what is kept and a follower has
	// yet to take it, as it would at a pipe; without followers the middle is dropped as ever.
	HoldOutput bool
	// Note is the client's own, to MaxNote bytes: List tells it while the op runs.
	Note string
}

// Stream is a byte stream of an op.
type Stream uint8

const (
	Stdout Stream = 1 // a PTY has only this one
	Stderr Stream = 2
)

// Limit tells which limit ended or hindered an op.
type Limit string

const (
	LimitNone   Limit = ""
	LimitMemory Limit = "memory" // OOM: told apart from a plain SIGKILL
	LimitPids   Limit = "pids"
	LimitDisk   Limit = "disk"
	LimitOutput Limit = "output"
)

// Result is how an op ended.
type Result struct {
	OpID     OpID
	ExitCode int    // 0..255; -1 when ended by a signal
	Signal   string // "SIGKILL", … when ended by a signal
	TimedOut bool
	OOM      bool
	Limit    Limit
	WallMs   float64
	UserMs   float64
	SysMs    float64
	// PeakMemory is the largest resident size of a process of the op, bytes.
	PeakMemory            int64
	ReadBytes, WriteBytes int64
	Stdout, Stderr        Output
	// Survivors is the number of processes of the op that live on in the background.
	Survivors int
	// Error is set when the command could not be started (class user), or the guest failed.
	Error *WireError
}

// Output is what was kept of a stream.
type Output struct {
	Head    []byte
	Tail    []byte
	Dropped int64 // bytes between Head and Tail that were not kept
	Total   int64 // bytes the op wrote
}

// EventKind of an attached exec.
type EventKind uint8

const (
	EventStarted EventKind = 1 // Pid
	EventOutput  EventKind = 2 // Stream, Offset, Data
	EventGap     EventKind = 3 // Stream, Offset, Dropped: bytes no longer kept
	EventExit    EventKind = 4 // Result; nothing follows
)

// ExecEvent is one event of an attached exec. Offsets count a stream's bytes from its start.
type ExecEvent struct {
	Kind    EventKind
	Pid     int
	Stream  Stream
	Offset  int64
	Data    []byte
	Dropped int64
	Result  *Result
}

// OpInfo is one line of List.
type OpInfo struct {
	OpID         OpID
	Pid          int
	Argv         []string // or the script as one element
	ShellSession string
	User         string
	Cwd          string
	PTY          bool
	Running      bool
	Background   bool
	StartedUnix  int64 // ns, box's wall clock
	Survivors    int
	Result       *Result // without output bytes; nil while running
	Note         string  // the request's; empty when the op has ended
}

// FileType of a FileInfo.
type FileType uint8

const (
	TypeFile FileType = iota + 1
	TypeDir
	TypeSymlink
	TypeFifo
	TypeSocket
	TypeDevice
)

// FileInfo is what lstat says.
type FileInfo struct {
	Path      string // as asked
	Name      string // last element, raw bytes
	Type      FileType
	Size      int64
	Mode      uint32 // permission, set-id and sticky bits
	UID, GID  uint32
	User      string // name where the box's passwd knows it
	Group     string
	ModUnix   int64  // ns
	Target    string // of a symlink
	Links     uint64
	Blocks512 int64
	// What a symlink leads to in the end, of requests on a user's behalf: zero when it leads nowhere.
	LeadsTo     string
	LeadsToType FileType
	LeadsToMode uint32
	Attrs       []string // "name=value" of the attributes below the request's AttrPrefix
}

// WatchEvent is a change below a watched directory.
type WatchEvent struct {
	Kind     string // create, write, remove, rename, chmod, overflow
	Path     string // relative to the watched directory
	Overflow bool   // events were lost: list again
}

// WireError is a guest's error; the client turns it into *errdefs.Error.
// The guest can never choose class infrastructure.
type WireError struct {
	Class   string
	Reason  string
	Object  string
	Message string
	Remedy  string
}
