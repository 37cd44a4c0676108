package guestproto

// Every connection to a guest's socket begins with an 8-byte preamble: the
// magic, a kind byte and a zero.
const (
	PreambleMagic   = "DSECG1"
	PreambleSetup   = 'S' // one Setup with descriptors, one SetupReply, close (after a SetupPrepare: once more)
	PreambleControl = 'C' // the framed, multiplexed guest protocol
	PreambleSize    = 8
)

// Preamble gives the first bytes of a connection of the given kind.
func Preamble(kind byte) [PreambleSize]byte {
	var p [PreambleSize]byte
	copy(p[:], PreambleMagic)
	p[6] = kind
	return p
}

// SetupKind says what a setup connection asks for.
type SetupKind uint8

const (
	SetupBoot  SetupKind = 1 // the first message of a guest's life: make the box
	SetupClaim SetupKind = 2 // turn a pooled box into the one a session asked for
	// SetupPrepare comes before a boot that is not due yet, with the agent's groups. The
	// boot follows on the same connection; without it the guest ends.
	SetupPrepare SetupKind = 3
)

// FDRole says what a passed descriptor is for.
type FDRole uint8

const (
	FDRoot        FDRole = 1 // detached mount: the root tree
	FDMount       FDRole = 2 // detached mount to attach at Path, in the order given
	FDWritable    FDRole = 3 // detached mount of a directory of the store; Path is a writable directory
	FDAgentTasks  FDRole = 4 // v1 `tasks` file that an agent process joins by writing "0"
	FDAgentCgroup FDRole = 5 // the agent's cgroup2 directory, where the guest makes a leaf per op
	FDAgentMemory FDRole = 6 // memory.oom_control (v1) or memory.events (v2) of the agent, to tell OOM kills apart
	FDAgentPids   FDRole = 7 // pids.events of the agent, to tell refused forks
)

// SetupFD describes one passed descriptor; the descriptors come in the same
// order as control data of the message's first byte.
type SetupFD struct {
	Role FDRole
	Path string
}

// Setup is the message of a setup connection.
type Setup struct {
	Kind SetupKind
	FDs  []SetupFD
	// Pooled says, in a boot, that a claim follows: the fields below hold the pool's own values.
	Pooled bool
	// TmpSize bounds /tmp and /dev/shm together, bytes; 0 leaves them as they are.
	TmpSize int64
	// WritableDirs are the writable paths that the store does not back with a
	// mount of its own because the whole root is writable: made if absent.
	WritableDirs  []string
	Hostname      string
	User          string // default user of ops
	Env           []string
	NewPrivileges bool
	Seccomp       []byte // raw filter, installed in every agent process
	NoFile        uint64 // rlimits of agent processes; 0: the guest's default
	FSize         uint64
	Stack         uint64
}

// SetupReply answers a Setup. Error nil means that everything was applied.
type SetupReply struct {
	Error *WireError
}

// MaxSetup bounds a setup message, MaxSetupFDs its descriptors (the kernel's own limit is 253).
const (
	MaxSetup    = 8 << 20
	MaxSetupFDs = 250
)

// EncodeFields writes the descriptor's description.
func (f *SetupFD) EncodeFields(e *Encoder) {
	e.Uint(1, uint64(f.Role))
	e.String(2, f.Path)
}

// DecodeFields reads it.
func (f *SetupFD) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			f.Role = FDRole(d.UintMax(255))
		case 2:
			f.Path = d.String(4096)
		}
	}
}

// EncodeFields writes the message.
func (s *Setup) EncodeFields(e *Encoder) {
	e.Uint(1, uint64(s.Kind))
	for i := range s.FDs {
		e.Message(2, &s.FDs[i])
	}
	e.Bool(3, s.Pooled)
	e.Int(4, s.TmpSize)
	e.Strings(5, s.WritableDirs)
	e.String(6, s.Hostname)
	e.String(7, s.User)
	e.Strings(8, s.Env)
	e.Bool(9, s.NewPrivileges)
	e.Bytes(10, s.Seccomp)
	e.Uint(11, s.NoFile)
	e.Uint(12, s.FSize)
	e.Uint(13, s.Stack)
}

// DecodeFields reads the message; byte fields alias the input.
func (s *Setup) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			s.Kind = SetupKind(d.UintMax(255))
		case 2:
			if len(s.FDs) == MaxSetupFDs {
				d.Fail(ErrTooLong)
				return
			}
			s.FDs = append(s.FDs, SetupFD{})
			d.Message(&s.FDs[len(s.FDs)-1])
		case 3:
			s.Pooled = d.Bool()
		case 4:
			s.TmpSize = d.Int()
		case 5:
			s.WritableDirs = d.AppendString(s.WritableDirs, 256, 4096)
		case 6:
			s.Hostname = d.String(64)
		case 7:
			s.User = d.String(256)
		case 8:
			s.Env = d.AppendString(s.Env, 65536, MaxSetup)
		case 9:
			s.NewPrivileges = d.Bool()
		case 10:
			s.Seccomp = d.Bytes(1 << 16)
		case 11:
			s.NoFile = d.Uint()
		case 12:
			s.FSize = d.Uint()
		case 13:
			s.Stack = d.Uint()
		}
	}
}

// EncodeFields writes the reply.
func (r *SetupReply) EncodeFields(e *Encoder) {
	e.Bool(1, r.Error == nil)
	if w := r.Error; w != nil {
		e.String(2, w.Class)
		e.String(3, w.Reason)
		e.String(4, w.Object)
		e.String(5, w.Message)
		e.String(6, w.Remedy)
	}
}

// DecodeFields reads the reply. Only one that says so is a success.
func (r *SetupReply) DecodeFields(d *Decoder) {
	var w WireError
	applied := false
	for d.Next() {
		switch d.Field() {
		case 1:
			applied = d.Bool()
		case 2:
			w.Class = d.String(64)
		case 3:
			w.Reason = d.String(64)
		case 4:
			w.Object = d.String(8192)
		case 5:
			w.Message = d.String(16384)
		case 6:
			w.Remedy = d.String(8192)
		}
	}
	if !applied {
		r.Error = &w
	}
}
