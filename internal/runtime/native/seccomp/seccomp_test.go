package seccomp

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func compile(t testing.TB, profile string, extra ...string) []byte {
	t.Helper()
	f, err := Compile(profile, extra, Options{Arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// judge evaluates a named call of amd64.
func judge(t testing.TB, f []byte, name string, args ...uint64) string {
	t.Helper()
	nr, ok := tables()["amd64"].numbers[name]
	if !ok {
		t.Fatalf("no such call: %s", name)
	}
	c := call{nr: nr, arch: tables()["amd64"].audit}
	copy(c.args[:], args)
	a, _ := eval(t, f, c)
	return actionName(a)
}

const hi = 1 << 32 // a bit the kernel drops from an int

func TestArguments(t *testing.T) {
	for _, tc := range []struct {
		profile, call string
		args          []uint64
		want          string
	}{
		{"default", "read", nil, "allow"},
		{"default", "execve", nil, "allow"},
		{"default", "mount", nil, "errno 1"},
		{"default", "ptrace", nil, "errno 1"},
		{"debug", "ptrace", nil, "allow"},
		{"debug", "perf_event_open", nil, "errno 1"},
		{"build", "fanotify_init", nil, "allow"},
		{"default", "clone3", nil, "errno 38"},
		{"default", "sync", nil, "errno 0"},

		{"default", "clone", []uint64{0x3d0f00}, "allow"}, // pthread_create
		{"default", "clone", []uint64{0x1200011}, "allow"},
		{"default", "clone", []uint64{0x10000011}, "errno 1"},
		{"default", "clone", []uint64{0x20000 | 17}, "errno 1"},
		{"default", "clone", []uint64{hi | 0x10000000}, "errno 1"},
		{"default", "unshare", []uint64{0x200}, "allow"},
		{"default", "unshare", []uint64{0x600}, "allow"},
		{"default", "unshare", []uint64{0x80}, "errno 1"}, // CLONE_NEWTIME
		{"default", "unshare", []uint64{0x10000000}, "errno 1"},
		{"default", "unshare", []uint64{hi}, "errno 1"},

		{"default", "personality", []uint64{0}, "allow"},
		{"default", "personality", []uint64{0x40000}, "allow"},
		{"default", "personality", []uint64{0xffffffff}, "allow"},
		{"default", "personality", []uint64{0x400000}, "errno 1"}, // READ_IMPLIES_EXEC
		{"default", "personality", []uint64{8}, "errno 1"},
		{"default", "prlimit64", []uint64{0}, "allow"},
		{"default", "prlimit64", []uint64{1}, "errno 1"},

		{"default", "ioctl", []uint64{0, 0x5401}, "allow"}, // TCGETS
		{"default", "ioctl", []uint64{0, 0x5412}, "errno 1"},
		{"default", "ioctl", []uint64{0, hi | 0x5412}, "errno 1"},
		{"default", "ioctl", []uint64{0, 0x541c}, "errno 1"},
		{"default", "ioctl", []uint64{0, 0xc0c0586d}, "errno 1"},
		{"default", "ioctl", []uint64{0, 0xc028660f}, "errno 1"},
		{"default", "ioctl", []uint64{0, 0x40049409}, "allow"}, // FICLONE

		{"default", "mknod", []uint64{0, 0o010644}, "allow"},
		{"default", "mknod", []uint64{0, 0o020644}, "errno 1"},
		{"default", "mknodat", []uint64{0, 0, 0o060644}, "errno 1"},
		{"default", "mknodat", []uint64{0, 0, 0o140644}, "allow"}, // a socket has the bits of a block device and more

		{"default", "socket", []uint64{1, 2, 0}, "allow"},
		{"default", "socket", []uint64{2, 1 | 0x80000, 0}, "allow"},
		{"default", "socket", []uint64{2, 1, 6}, "allow"},
		{"default", "socket", []uint64{10, 2 | 0x800, 17}, "allow"},
		{"default", "socket", []uint64{10, 2, 0}, "allow"},
		{"default", "socket", []uint64{2, 2, 1}, "errno 93"}, // ping socket
		{"network", "socket", []uint64{2, 2, 1}, "allow"},
		{"network", "socket", []uint64{10, 2, 58}, "allow"},
		{"default", "socket", []uint64{2, 1, 262}, "errno 93"}, // MPTCP: Go falls back
		{"default", "socket", []uint64{2, 1, 132}, "errno 93"}, // SCTP
		{"network", "socket", []uint64{2, 3, 1}, "errno 1"},    // raw
		{"network", "socket", []uint64{hi | 2, hi | 3, 255}, "errno 1"},
		{"network", "socket", []uint64{2, 10, 0x300}, "errno 93"}, // SOCK_PACKET
		{"default", "socket", []uint64{16, 3, 0}, "allow"},        // NETLINK_ROUTE
		{"default", "socket", []uint64{16, 3, 9}, "errno 93"},     // NETLINK_AUDIT
		{"network", "socket", []uint64{17, 3, 0x300}, "errno 97"}, // AF_PACKET
		{"network", "socket", []uint64{40, 1, 0}, "errno 97"},     // AF_VSOCK
		{"network", "socket", []uint64{38, 5, 0}, "errno 97"},     // AF_ALG
		{"network", "socket", []uint64{15, 3, 2}, "errno 97"},     // AF_KEY
		{"default", "socketpair", []uint64{1, 1, 0}, "allow"},
		{"default", "socketpair", []uint64{30, 1, 0}, "errno 97"}, // TIPC
		{"default", "setsockopt", []uint64{3, 6, 1}, "allow"},
		{"default", "setsockopt", []uint64{3, 6, 31}, "errno 2"},
		{"default", "setsockopt", []uint64{3, 1, 31}, "allow"},
	} {
		if got := judge(t, compile(t, tc.profile), tc.call, tc.args...); got != tc.want {
			t.Errorf("%s: %s%#x: got %s, want %s", tc.profile, tc.call, tc.args, got, tc.want)
		}
	}
}

func TestForeignABIAndUnknownNumbers(t *testing.T) {
	f, audit := compile(t, "debug"), tables()["amd64"].audit
	for _, tc := range []struct {
		c    call
		want string
	}{
		{call{nr: 39, arch: 0x40000003}, "kill"}, // i386
		{call{nr: 39, arch: 0xC00000B7}, "kill"},
		{call{nr: x32Bit | 39, arch: audit}, "kill"},
		{call{nr: 0x80000000, arch: audit}, "kill"},
		{call{nr: 0xffffffff, arch: audit}, "errno 38"},
		{call{nr: 400, arch: audit}, "errno 38"}, // a gap
		{call{nr: 4000, arch: audit}, "errno 38"},
	} {
		if a, _ := eval(t, f, tc.c); actionName(a) != tc.want {
			t.Errorf("%+v: got %s, want %s", tc.c, actionName(a), tc.want)
		}
	}
}

// TestEveryDecision holds the binary search against the plain decisions, for every number.
func TestEveryDecision(t *testing.T) {
	for arch, tab := range tables() {
		for _, profile := range Profiles() {
			f, err := Compile(profile, nil, Options{Arch: arch})
			if err != nil {
				t.Fatal(err)
			}
			base, _ := profileCalls(profile)
			d := decide(tab, profile, base)
			deepest := 0
			for nr := range uint32(1000) {
				want := ruleUnknown
				if r, ok := d[nr]; ok {
					want = r
				}
				got, steps := eval(t, f, call{nr: nr, arch: tab.audit})
				if len(want.clauses) > 0 {
					continue // by TestArguments
				}
				deepest = max(deepest, steps)
				if got != want.action {
					t.Errorf("%s %s: call %d: got %s, want %s", arch, profile, nr, actionName(got), actionName(want.action))
				}
			}
			if deepest > 24 || len(f)/8 > 300 {
				t.Errorf("%s %s: %d instructions, deepest path %d: longer than it has to be", arch, profile, len(f)/8, deepest)
			}
		}
	}
}

func TestListsNameRealCalls(t *testing.T) {
	lists := slices.Concat(strings.Fields(defaultCalls), strings.Fields(buildCalls), strings.Fields(debugCalls),
		slices.Collect(maps.Keys(never)), slices.Collect(maps.Keys(rules(Default))))
	for _, name := range lists {
		if !known(name) {
			t.Errorf("no architecture has %s", name)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		profile string
		extra   []string
		class   errdefs.Class
		text    string
	}{
		{"defualt", nil, errdefs.User, "use one of build, debug, default"},
		{"default", []string{"opnat"}, errdefs.User, "did you mean openat"},
		{"default", []string{"no_such_call_at_all"}, errdefs.User, "syscalls(2)"},
		{"default", []string{"mount"}, errdefs.Policy, "mount is never allowed in a box: it changes what is mounted"},
		{"debug", []string{"read", "bpf"}, errdefs.Policy, "bpf"},
		{"build", []string{"io_uring_setup"}, errdefs.Policy, "pass by this filter"},
	} {
		_, err := Compile(tc.profile, tc.extra, Options{})
		e, ok := errors.AsType[*errdefs.Error](err)
		if !ok || e.Class != tc.class || !strings.Contains(e.Error(), tc.text) {
			t.Errorf("%s %v: got %v, want class %s with %q", tc.profile, tc.extra, err, tc.class, tc.text)
		}
	}
	if _, err := Compile(Alias, []string{"execve", "write", "read", "openat", "socket"}, Options{}); err != nil {
		t.Errorf("the seeds' spec: %v", err)
	}
}

// TestNeverIsNever: whatever a spec says, what is on the never list, and the
// forbidden arguments of calls under a rule, are refused.
func TestNeverIsNever(t *testing.T) {
	names := slices.Sorted(maps.Keys(tables()["amd64"].numbers))
	nevers := slices.Sorted(maps.Keys(never))
	rapid.Check(t, func(rt *rapid.T) {
		profile := rapid.SampledFrom(append(Profiles(), Alias, "")).Draw(rt, "profile")
		extra := rapid.SliceOf(rapid.SampledFrom(names)).Draw(rt, "extra")
		f, err := Compile(profile, extra, Options{Arch: "amd64"})
		if err != nil {
			hit := slices.ContainsFunc(extra, func(n string) bool { return never[n] != "" })
			if e, ok := errors.AsType[*errdefs.Error](err); !hit || !ok || e.Class != errdefs.Policy {
				rt.Fatalf("%v: %v", extra, err)
			}
			extra = slices.DeleteFunc(extra, func(n string) bool { return never[n] != "" })
			f = compile(t, profile, extra...)
		}
		var args [6]uint64
		for i := range args {
			args[i] = rapid.Uint64().Draw(rt, "arg")
		}
		for _, name := range nevers {
			if nr, ok := tables()["amd64"].numbers[name]; ok {
				if a, _ := eval(t, f, call{nr, tables()["amd64"].audit, args}); a == actAllow {
					rt.Fatalf("%s is allowed by %s %v", name, profile, extra)
				}
			}
		}
		refused := func(name string, args ...uint64) {
			if got := judge(t, f, name, args...); got == "allow" {
				rt.Fatalf("%s%#x is allowed by %s %v", name, args, profile, extra)
			}
		}
		flag := uint64(1) << rapid.SampledFrom([]int{17, 25, 26, 27, 28, 29, 30}).Draw(rt, "namespace")
		refused("clone", args[0]|flag)
		refused("unshare", args[0]|flag)
		refused("ioctl", args[0], args[1]<<32|rapid.SampledFrom([]uint64{0x5412, 0x541c, 0xc0c0586d, 0xc028660f}).Draw(rt, "cmd"))
		refused("prlimit64", args[0]|1)
		family := rapid.Uint64Range(0, 64).Draw(rt, "family")
		if family != 1 && family != 2 && family != 10 && family != 16 {
			refused("socket", args[1]<<32|family, args[2], args[3])
		}
		refused("socket", args[1]<<32|2, args[2]&^0xf|3, args[3])
		refused("socket", 16, args[2], args[3]|1)
	})
}

func TestMemoIsBounded(t *testing.T) {
	names := slices.Sorted(maps.Keys(tables()["amd64"].numbers))
	for i, n := range names {
		for _, m := range names[:i%3] {
			Compile("default", []string{n, m}, Options{Arch: "amd64"})
		}
	}
	memo.Lock()
	defer memo.Unlock()
	if len(memo.filters) > maxMemo {
		t.Errorf("memo has %d filters", len(memo.filters))
	}
}

func BenchmarkCompileCold(b *testing.B) {
	for b.Loop() {
		t := tables()["amd64"]
		base, _ := profileCalls("default")
		p, err := assemble(t, decide(t, "default", base))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(p)), "insns")
	}
}
