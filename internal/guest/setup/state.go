package setup

import (
	"slices"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// Keep gives the box's settings for a next life of this guest; nil before the box is a session's, because until then a setup
// may come that nobody shall wait for.
func (b *Box) Keep() *Settings {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.claimed {
		return nil
	}
	return b.settings.Load()
}

// Descriptors are those that the settings name.
func (s *Settings) Descriptors() []int {
	fds := slices.Clone(s.AgentTasks)
	for _, fd := range []int{s.AgentCgroup, s.AgentMemory, s.AgentPids} {
		if fd >= 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// Restore makes the box, which must be fresh, what it was when Keep gave s.
func (b *Box) Restore(s *Settings) {
	b.claimed = true
	b.settings.Store(s)
	b.Booted()
	close(b.booted)
	if b.Prepare != nil {
		b.Prepare(s.AgentTasks, s.AgentCgroup)
	}
}

// EncodeFields implements guestproto.Message, for this guest itself: descriptors are numbers. What a claim alone needs is left out.
func (s *Settings) EncodeFields(e *guestproto.Encoder) {
	e.Strings(1, s.Env)
	e.String(2, s.User)
	e.String(3, s.Hostname)
	e.Bool(4, s.NewPrivileges)
	e.Bytes(5, s.Seccomp)
	e.Uint(6, s.NoFile)
	e.Uint(7, s.FSize)
	e.Uint(8, s.Stack)
	e.Strings(9, s.WritableDirs)
	for _, fd := range s.AgentTasks {
		e.Uints(10, []uint64{uint64(fd)})
	}
	e.Int(11, int64(s.AgentCgroup))
	e.Int(12, int64(s.AgentMemory))
	e.Int(13, int64(s.AgentPids))
}

// DecodeFields implements guestproto.Message. Its limits are those of the message that the settings came in.
func (s *Settings) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			s.Env = d.AppendString(s.Env, guestproto.MaxSetup, guestproto.MaxSetup)
		case 2:
			s.User = d.String(guestproto.MaxSetup)
		case 3:
			s.Hostname = d.String(guestproto.MaxSetup)
		case 4:
			s.NewPrivileges = d.Bool()
		case 5:
			s.Seccomp = slices.Clone(d.Bytes(guestproto.MaxSetup))
		case 6:
			s.NoFile = d.Uint()
		case 7:
			s.FSize = d.Uint()
		case 8:
			s.Stack = d.Uint()
		case 9:
			s.WritableDirs = d.AppendString(s.WritableDirs, guestproto.MaxSetup, guestproto.MaxSetup)
		case 10:
			s.AgentTasks = append(s.AgentTasks, int(d.Uint()))
		case 11:
			s.AgentCgroup = int(d.Int())
		case 12:
			s.AgentMemory = int(d.Int())
		case 13:
			s.AgentPids = int(d.Int())
		}
	}
}
