package guestproto

import "errors"

// Every connection to a guest's socket begins with an 8-byte preamble: the
// magic, a kind byte and a zero.
const (
	PreambleMagic   = "DSECG1"
	PreambleSetup   = 'S' // one Setup with descriptors, one SetupReply, close
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
)

// FDRole says what a passed descriptor is for.
type FDRole uint8

const (
	FDRoot        FDRole = 1 // detached mount: the root tree
	FDMount       FDRole = 2 // detached mount to attach at Path, in the order given
	FDWritable    FDRole = 3 // detached mount of a directory of the store; Path is a writable directory
	FDAgentTasks  FDRole = 4 // v1 `tasks` file that an agent process joins by writing "0"
	FDAgentCgroup FDRole = 5 // the agent's cgroup2 directory, where the guest makes a leaf per op
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
	// TmpSize bounds /tmp and /dev/shm each, bytes; 0 leaves them as they are.
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

// ErrMalformed is returned for bytes that are not a message.
var ErrMalformed = errors.New("malformed setup message")

const (
	setupKind = iota + 1
	setupFD
	setupPooled
	setupTmpSize
	setupWritableDir
	setupHostname
	setupUser
	setupEnv
	setupNewPrivileges
	setupSeccomp
	setupNoFile
	setupFSize
	setupStack
)

// Marshal encodes the message.
func (s *Setup) Marshal() []byte {
	var w fields
	w.uint(setupKind, uint64(s.Kind))
	for _, fd := range s.FDs {
		w.bytes(setupFD, append([]byte{byte(fd.Role)}, fd.Path...))
	}
	w.flag(setupPooled, s.Pooled)
	w.uint(setupTmpSize, uint64(s.TmpSize))
	w.strings(setupWritableDir, s.WritableDirs)
	w.string(setupHostname, s.Hostname)
	w.string(setupUser, s.User)
	w.strings(setupEnv, s.Env)
	w.flag(setupNewPrivileges, s.NewPrivileges)
	if len(s.Seccomp) > 0 {
		w.bytes(setupSeccomp, s.Seccomp)
	}
	w.uint(setupNoFile, s.NoFile)
	w.uint(setupFSize, s.FSize)
	w.uint(setupStack, s.Stack)
	return w.buf
}

// Unmarshal decodes a message; unknown fields are skipped. The result keeps
// slices of b.
func (s *Setup) Unmarshal(b []byte) error {
	return eachField(b, func(tag byte, v []byte) error {
		var err error
		switch tag {
		case setupKind:
			var k uint64
			k, err = fieldUint(v)
			s.Kind = SetupKind(k)
		case setupFD:
			if len(v) == 0 || len(s.FDs) == MaxSetupFDs {
				return ErrMalformed
			}
			s.FDs = append(s.FDs, SetupFD{Role: FDRole(v[0]), Path: string(v[1:])})
		case setupPooled:
			s.Pooled, err = fieldFlag(v)
		case setupTmpSize:
			var n uint64
			n, err = fieldUint(v)
			s.TmpSize = int64(n)
		case setupWritableDir:
			s.WritableDirs = append(s.WritableDirs, string(v))
		case setupHostname:
			s.Hostname = string(v)
		case setupUser:
			s.User = string(v)
		case setupEnv:
			s.Env = append(s.Env, string(v))
		case setupNewPrivileges:
			s.NewPrivileges, err = fieldFlag(v)
		case setupSeccomp:
			s.Seccomp = v
		case setupNoFile:
			s.NoFile, err = fieldUint(v)
		case setupFSize:
			s.FSize, err = fieldUint(v)
		case setupStack:
			s.Stack, err = fieldUint(v)
		}
		return err
	})
}

const (
	replyFailed = iota + 1
	replyClass
	replyReason
	replyObject
	replyMessage
	replyRemedy
)

// Marshal encodes the reply.
func (r *SetupReply) Marshal() []byte {
	var w fields
	w.flag(replyFailed, r.Error != nil)
	if e := r.Error; e != nil {
		w.string(replyClass, e.Class)
		w.string(replyReason, e.Reason)
		w.string(replyObject, e.Object)
		w.string(replyMessage, e.Message)
		w.string(replyRemedy, e.Remedy)
	}
	return w.buf
}

// Unmarshal decodes a reply.
func (r *SetupReply) Unmarshal(b []byte) error {
	var e WireError
	failed := true // an empty reply is not a success
	err := eachField(b, func(tag byte, v []byte) (err error) {
		switch tag {
		case replyFailed:
			failed, err = fieldFlag(v)
		case replyClass:
			e.Class = string(v)
		case replyReason:
			e.Reason = string(v)
		case replyObject:
			e.Object = string(v)
		case replyMessage:
			e.Message = string(v)
		case replyRemedy:
			e.Remedy = string(v)
		}
		return err
	})
	if err == nil && failed {
		r.Error = &e
	}
	return err
}
