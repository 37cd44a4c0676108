package pid1

import (
	"math"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest"
	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guest/sleeper"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// restArgs is the number of arguments of a guest that has rested: its name, what the sleeper needs, and the descriptor of
// its state.
const restArgs = 3

// rest is called when nothing has happened for a while. A guest that nobody is connected to and in whose box nothing
// runs becomes the sleeper; another one gives back the memory that it does not need.
func (l *listener) rest() {
	l.sleep()
	guest.Shrink()
}

// sleep leaves the state in an anonymous file and executes the sleeper. It returns only when this guest has to stay awake.
// Nothing else lives in the box then, so nobody in it can meet a guest that is not hardened yet.
func (l *listener) sleep() {
	l.mu.Lock() // no connection is taken from here on: it waits in the socket's queue, and wakes the sleeper at once
	defer l.mu.Unlock()
	if l.open > 0 {
		return
	}
	settings := l.box.Keep()
	if settings == nil {
		return
	}
	state, fds, ok := l.srv.Keep()
	if !ok {
		return
	}
	kept := guestproto.Marshal(nil, &life{settings: settings, server: state})
	// What cannot be read again must not be found out afterwards.
	if guestproto.Unmarshal(kept, &life{settings: &setup.Settings{}}) != nil {
		return
	}
	fd, err := sleeper.File("state", kept, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	fds = slices.Concat(fds, settings.Descriptors(), []int{fd, ListenFD})
	defer func() { _ = setAll(fds, false) }()
	if setAll(fds, true) == nil {
		_ = sleeper.Exec([]string{os.Args[0], "", strconv.Itoa(fd)})
	}
}

func setAll(fds []int, keep bool) error {
	for _, fd := range fds {
		if err := sleeper.KeepOnExec(fd, keep); err != nil {
			return err
		}
	}
	return nil
}

// wake takes over what sleep has left.
func (l *listener) wake(args []string) error {
	self, err1 := strconv.Atoi(args[1])
	fd, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil {
		return guestproto.ErrBadMessage
	}
	_ = unix.Close(self)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	b := make([]byte, st.Size)
	if n, err := unix.Pread(fd, b, 0); err != nil || n != len(b) {
		return guestproto.ErrBadMessage
	}
	_ = unix.Close(fd)
	kept := life{settings: &setup.Settings{}}
	if err := guestproto.Unmarshal(b, &kept); err != nil {
		return err
	}
	fds, err := l.srv.Restore(kept.server)
	if err != nil {
		return err
	}
	if err := setAll(slices.Concat(fds, kept.settings.Descriptors()), false); err != nil {
		return err
	}
	l.box.Restore(kept.settings)
	l.srv.Touch() // whoever woke it may have gone again
	return nil
}

// life is what one life of the guest leaves for the next.
type life struct {
	settings *setup.Settings
	server   []byte
}

// EncodeFields implements guestproto.Message.
func (l *life) EncodeFields(e *guestproto.Encoder) {
	e.Message(1, l.settings)
	e.Bytes(2, l.server)
}

// DecodeFields implements guestproto.Message.
func (l *life) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			d.Message(l.settings)
		case 2:
			l.server = d.Bytes(math.MaxInt)
		}
	}
}
