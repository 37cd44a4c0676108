package setup

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// The mounts themselves are tested with real boxes (internal/runtime/native).

func TestStates(t *testing.T) {
	var b Box
	claim := &guestproto.Setup{Kind: guestproto.SetupClaim}
	if err := b.apply(claim, nil); err == nil {
		t.Error("a claim before the boot was taken")
	}
	if err := b.apply(&guestproto.Setup{Kind: guestproto.SetupBoot}, nil); err == nil || b.Settings() != nil {
		t.Errorf("a boot without a root: %v, settings %v", err, b.Settings())
	}
	select {
	case <-b.Booted():
		t.Error("booted")
	default:
	}
	b.settings.Store(&Settings{})
	b.claimed = true
	if err := b.apply(claim, nil); err == nil {
		t.Error("a second claim was taken")
	}
}

func TestDescriptorsAreClosedWhateverHappens(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	var b Box
	desc := []guestproto.SetupFD{{Role: guestproto.FDMount, Path: "/x"}, {Role: 99}}
	if err := b.apply(&guestproto.Setup{Kind: guestproto.SetupClaim, FDs: desc}, pipe[:]); err == nil {
		t.Fatal("taken")
	}
	for _, fd := range pipe {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
			t.Errorf("descriptor %d is open still", fd)
		}
	}
}

func TestTopMounts(t *testing.T) {
	in := []mount{{path: "/dev"}, {path: "/usr"}, {path: "/usr/secret"}, {path: "/usrlocal"}, {path: "/data"}}
	if got := topMounts(in); !reflect.DeepEqual(got, []string{"/dev", "/usr", "/usrlocal", "/data"}) {
		t.Errorf("got %v", got)
	}
}

func TestMkdirAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a/b/c")
	for range 2 {
		if err := mkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		t.Error(err)
	}
}

func TestErrorsNameTheirRemedy(t *testing.T) {
	if w := wireError(stepError{"mount point", "/data", unix.ENOENT}); w.Class != "user" || w.Reason != "not_found" || w.Object != "/data" || w.Remedy == "" {
		t.Errorf("%+v", w)
	}
	for _, err := range []error{stepError{"own", "/etc/authorities.pem", unix.EROFS}, noUser("nobodyx")} {
		if w := wireError(err); w.Class != "user" || w.Reason != "invalid_argument" || w.Object == "" || w.Remedy == "" {
			t.Errorf("%+v", w)
		}
	}
	if w := wireError(stepError{"pivot", "", unix.EINVAL}); w.Class != "policy" {
		t.Errorf("%+v", w)
	}
}
