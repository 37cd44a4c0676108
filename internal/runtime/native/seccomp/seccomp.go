// Package seccomp compiles the system call filters of agent processes: named,
// default-deny allow-lists that the guest installs before every execve.
//
// A filter answers each call in one of these ways:
//
//	allow                      the call is in the profile (and its arguments pass its rule)
//	EPERM                      a known call that the profile does not have
//	ENOSYS                     a number that is in no table, so that libraries fall back
//	the rule's own answer      see rules.go, each with its reason
//	kill the process           a foreign ABI (i386, x32): the table's numbers mean nothing there
//
// What is in never.go is granted by no profile and by no allow_extra.
package seccomp

import (
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Options of Compile. The zero value compiles for this machine.
type Options struct {
	Arch string // a GOARCH with a table: amd64, arm64; default runtime.GOARCH
}

// Alias is the seeds' name of the profile Default.
const Alias = "default_deny_allowlist"

// Default is the profile that is used when a spec names none.
const Default = "default"

// maxMemo bounds the memo: allow_extra comes from users. Past it the memo starts anew.
const maxMemo = 256

var memo struct {
	sync.Mutex
	filters map[string][]byte
}

// Profiles lists the names of the profiles, the default first.
func Profiles() []string { return []string{Default, "network", "build", "debug"} }

// Compile gives the filter of a profile ("" is the default) with the calls of
// allowExtra added, as the array of struct sock_filter (little endian, 8 bytes
// each) that seccomp(2) takes. The result is shared: do not modify it.
//
// An unknown profile or call name is an error of class user; a call of the never
// list in allowExtra is an error of class policy that says why. A call that a
// profile has under a rule keeps that rule when allowExtra names it.
func Compile(profile string, allowExtra []string, o Options) ([]byte, error) {
	if o.Arch == "" {
		o.Arch = runtime.GOARCH
	}
	t, ok := tables()[o.Arch]
	if !ok {
		return nil, errdefs.Userf(errdefs.Unsupported, "seccomp", "use a machine of amd64 or arm64", "no system call table for %s", o.Arch)
	}
	if err := Lint(profile, allowExtra); err != nil {
		return nil, err
	}
	if profile == "" || profile == Alias {
		profile = Default
	}
	base, err := profileCalls(profile)
	if err != nil {
		return nil, err
	}
	extra := slices.Compact(slices.Sorted(slices.Values(allowExtra)))
	key := o.Arch + " " + profile + " " + strings.Join(extra, " ")

	memo.Lock()
	defer memo.Unlock()
	if f, ok := memo.filters[key]; ok {
		return f, nil
	}
	prog, err := assemble(t, decide(t, profile, append(base, extra...)))
	if err != nil {
		return nil, err
	}
	if memo.filters == nil || len(memo.filters) >= maxMemo {
		memo.filters = make(map[string][]byte)
	}
	f := encode(prog)
	memo.filters[key] = f
	return f, nil
}

// Lint checks a profile's name and the names in allowExtra without compiling.
func Lint(profile string, allowExtra []string) error {
	if _, err := profileCalls(profile); err != nil {
		return err
	}
	for _, name := range allowExtra {
		if why, ok := never[name]; ok {
			return errdefs.Policyf(errdefs.Forbidden, "field seccomp.allow_extra", "remove "+name+"; no profile can grant it",
				"the system call %s is never allowed in a box: %s", name, why)
		}
		if !known(name) {
			remedy := "use a name of syscalls(2)"
			if near := nearMisses(name); len(near) > 0 {
				remedy = "did you mean " + strings.Join(near, ", ") + "?"
			}
			return errdefs.Userf(errdefs.InvalidArgument, "field seccomp.allow_extra", remedy, "unknown system call %q", name)
		}
	}
	return nil
}

// decide gives the rule of every call in the table, by number. Calls that are
// in neither list are refused with EPERM.
func decide(t *table, profile string, allowed []string) map[uint32]*rule {
	d := make(map[uint32]*rule, len(t.numbers))
	for _, nr := range t.numbers {
		d[nr] = ruleRefused
	}
	for _, name := range allowed {
		if nr, ok := t.numbers[name]; ok {
			d[nr] = ruleAllowed
		}
	}
	for name, r := range rules(profile) {
		if nr, ok := t.numbers[name]; ok {
			d[nr] = r
		}
	}
	return d
}
