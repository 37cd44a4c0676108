package guestproto

import (
	"reflect"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func TestSetupRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Setup{
			Kind: SetupKind(rapid.IntRange(1, 2).Draw(t, "kind")), Pooled: rapid.Bool().Draw(t, "pooled"),
			TmpSize: rapid.Int64Min(0).Draw(t, "tmp"), Hostname: rapid.StringN(0, 10, 40).Draw(t, "host"),
			User: rapid.StringN(0, 10, 40).Draw(t, "user"), NewPrivileges: rapid.Bool().Draw(t, "nnp"),
			NoFile: rapid.Uint64().Draw(t, "nofile"), FSize: rapid.Uint64().Draw(t, "fsize"), Stack: rapid.Uint64().Draw(t, "stack"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			in.Env = append(in.Env, rapid.String().Draw(t, "env"))
			in.WritableDirs = append(in.WritableDirs, rapid.StringN(0, 20, 80).Draw(t, "dir"))
			in.FDs = append(in.FDs, SetupFD{Role: FDRole(rapid.IntRange(1, 6).Draw(t, "role")), Path: rapid.StringN(0, 20, 80).Draw(t, "path")})
		}
		if b := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "seccomp"); len(b) > 0 {
			in.Seccomp = b
		}
		var out Setup
		if err := Unmarshal(Marshal(nil, &in), &out); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("got %+v, want %+v", out, in)
		}
	})
}

func TestSetupReplyNeverSucceedsByDefault(t *testing.T) {
	for _, raw := range [][]byte{nil, Marshal(nil, &SetupReply{Error: &WireError{Reason: "internal", Message: "no"}})} {
		var r SetupReply
		if err := Unmarshal(raw, &r); err != nil || r.Error == nil {
			t.Fatalf("%q: error %v, reply %+v", raw, err, r)
		}
	}
	var r SetupReply
	if err := Unmarshal(Marshal(nil, &SetupReply{}), &r); err != nil || r.Error != nil {
		t.Fatalf("error %v, reply %+v", err, r)
	}
}

func TestSetupCarriesDescriptors(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[0])
	defer syscall.Close(pair[1])
	in := Setup{Kind: SetupBoot, Env: []string{string(make([]byte, 1<<20))}, FDs: []SetupFD{{Role: FDRoot}, {Role: FDMount, Path: "/x"}}}
	sent := make(chan error, 1)
	go func() { sent <- SendSetup(pair[0], &in, []int{pair[0], pair[1]}) }()
	var out Setup
	fds, err := RecvSetup(pair[1], &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if len(fds) != 2 || !reflect.DeepEqual(in, out) {
		t.Fatalf("got %d descriptors, equal: %v", len(fds), reflect.DeepEqual(in, out))
	}
	for _, fd := range fds {
		flags, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if e != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %d, %v", fd, flags, e)
		}
		syscall.Close(fd)
	}
}
