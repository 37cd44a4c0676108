package spec

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Words of the spec's choices.
const (
	RuntimeNative = "native"

	EgressDeny      = "deny"
	EgressWhitelist = "whitelist"
	EgressOpen      = "open"

	StoreAuto  = "auto"
	StoreTmpfs = "tmpfs"
	StoreDisk  = "disk"

	ProfileDefault = "default"
	profileAlias   = "default_deny_allowlist"
)

var (
	runtimes = []string{RuntimeNative, "docker", "gvisor", "firecracker", "qemu", "microvm", "kata"}
	egresses = []string{EgressDeny, EgressWhitelist, EgressOpen}
	stores   = []string{StoreAuto, StoreTmpfs, StoreDisk}
	profiles = []string{ProfileDefault, "network", "build", "debug", profileAlias}
)

// Choices gives the words that a field of a fixed set takes, by its path.
func Choices() map[string][]string {
	return map[string][]string{
		"runtime": runtimes, "network.egress_policy": egresses, "fs.writable_store": stores, "seccomp.profile": profiles,
		"fs.rootfs": {rootReadOnly, rootWritable},
	}
}

// Least values that make a box that can run anything.
const (
	MinMemory   = 4 * MiB
	MinPids     = 2
	MinCPU      = 0.01
	MinWritable = 64 * KiB
	// MaxWritable is less than the largest file of ext4 (16 TiB), which a box's disk is on the host.
	MaxWritable = 15 * TiB
)

const (
	maxSeconds = 366 * 24 * 3600
	maxCount   = 1 << 30
)

var (
	nameRE     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	labelRE    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	userRE     = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	syscallRE  = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,63}$`)
	priorityRE = nameRE
)

// checker collects problems of values; said tells whether a field was written,
// so that an explicit zero is told apart from silence.
type checker struct {
	report func(field, remedy, message string)
	said   func(field string) bool
}

func (c *checker) bad(field, remedy, format string, args ...any) {
	c.report(field, remedy, fmt.Sprintf(format, args...))
}

// Validate checks the values of a spec that did not come from Parse. A zero
// field is "not said" and always right. The error is a Problems.
func Validate(s *Sandbox) error {
	var found Problems
	c := &checker{
		report: func(f, r, m string) { found = append(found, Problem{Field: f, Message: m, Remedy: r}) },
		said:   func(string) bool { return false },
	}
	c.sandbox(s)
	return found.err()
}

// ValidateScheduler is Validate for a scheduler_config.
func ValidateScheduler(s *Scheduler) error {
	var found Problems
	c := &checker{
		report: func(f, r, m string) { found = append(found, Problem{Field: f, Message: m, Remedy: r}) },
		said:   func(string) bool { return false },
	}
	c.scheduler(s)
	return found.err()
}

func (doc *Document) validate() Problems {
	var found Problems
	part := func(name string) *checker {
		return &checker{
			report: func(f, r, m string) {
				full, pl := doc.at(name, f)
				found = append(found, Problem{File: doc.File, Line: pl.line, Column: pl.column, Field: full, Message: m, Remedy: r})
			},
			said: func(f string) bool { return doc.said(name, f) },
		}
	}
	if doc.Sandbox != nil {
		part(sandboxKey).sandbox(doc.Sandbox)
	}
	if doc.Scheduler != nil {
		part(schedulerKey).scheduler(doc.Scheduler)
	}
	return found
}

func (c *checker) oneOf(field, v string, known []string) {
	if (v == "" && !c.said(field)) || slices.Contains(known, v) {
		return
	}
	remedy := "use one of " + strings.Join(known, ", ")
	if near := Nearest(v, known); near != "" {
		remedy = "did you mean " + near + "?"
	}
	c.bad(field, remedy, "%q is not known", v)
}

func (c *checker) match(field, v string, re *regexp.Regexp, what string) {
	if (v == "" && !c.said(field)) || re.MatchString(v) {
		return
	}
	c.bad(field, "use "+what, "%q is not allowed", v)
}

// within checks a number that was said.
func within[T int | uint64 | int64 | float64 | Bytes](c *checker, field string, v, least, most T) {
	if v == 0 && !c.said(field) {
		return
	}
	if v < least {
		c.bad(field, fmt.Sprintf("give at least %v, or leave it out for the default", least), "%v is too small", v)
	} else if v > most {
		c.bad(field, fmt.Sprintf("give at most %v", most), "%v is too large", v)
	}
}

// Most entries of a spec's lists. Each directory and mount is a mount of its own in every box.
const maxDirs = 128

// lengths tells whether no list is too long to be looked at.
func (c *checker) lengths(s *Sandbox) bool {
	ok := true
	for _, l := range []struct {
		field   string
		n, most int
	}{
		{"fs.writable_dirs", len(s.FS.WritableDirs), maxDirs}, {"fs.mounts", len(s.FS.Mounts), maxDirs},
		{"network.allowed_domains", len(s.Network.AllowedDomains), maxItems}, {"network.allowed_ips", len(s.Network.AllowedIPs), maxItems},
		{"seccomp.allow_extra", len(s.Seccomp.AllowExtra), maxItems},
	} {
		if l.n > l.most {
			c.bad(l.field, fmt.Sprintf("give at most %d", l.most), "has %d entries", l.n)
			ok = false
		}
	}
	return ok
}

func (c *checker) sandbox(s *Sandbox) {
	if !c.lengths(s) {
		return
	}
	c.match("name", s.Name, nameRE, "1 to 63 letters, digits, _ . or -, starting with a letter or digit")
	if s.Runtime != "fake" { // the runtime of tests; Check refuses it where it is not offered
		c.oneOf("runtime", s.Runtime, runtimes)
	}
	within(c, "cpu_limit", s.CPULimit, MinCPU, 4096)
	within(c, "cpu_request", s.CPURequest, MinCPU, 4096)
	within(c, "mem_limit", s.MemLimit, MinMemory, 64*TiB)
	within(c, "pid_limit", s.PidLimit, MinPids, 1<<22)
	within(c, "io_limit.read_bps", s.IOLimit.ReadBPS, 4*KiB, 64*TiB)
	within(c, "io_limit.write_bps", s.IOLimit.WriteBPS, 4*KiB, 64*TiB)
	c.user(s.User)
	c.match("hostname", s.Hostname, labelRE, "a host name of 1 to 63 lower-case letters, digits and inner -")
	c.fs(&s.FS)
	c.network(&s.Network)
	c.oneOf("seccomp.profile", s.Seccomp.Profile, profiles)
	for i, n := range s.Seccomp.AllowExtra {
		if !syscallRE.MatchString(n) {
			c.bad(fmt.Sprintf("seccomp.allow_extra[%d]", i), "use the name of a system call, like ptrace", "%q is not a system call's name", n)
		}
	}
	within(c, "session.max_idle_seconds", s.Session.MaxIdleSeconds, 1, maxSeconds)
	within(c, "session.heartbeat_interval", s.Session.HeartbeatInterval, 1, maxSeconds)
	within(c, "session.max_runtime_seconds", s.Session.MaxRuntimeSeconds, 1, maxSeconds)
	within(c, "session.max_suspended_seconds", s.Session.MaxSuspendedSeconds, 1, maxSeconds)
	within(c, "rlimits.nofile", s.Rlimits.NoFile, 16, 1<<20)
	within(c, "rlimits.fsize", s.Rlimits.FSize, 4*KiB, 64*TiB)
	within(c, "rlimits.stack", s.Rlimits.Stack, 128*KiB, 64*GiB)
}

func (c *checker) user(u string) {
	if u == "" && !c.said("user") || userRE.MatchString(u) {
		return
	}
	if n, err := strconv.ParseUint(u, 10, 32); err == nil && n < 65535 {
		return
	}
	c.bad("user", "use a user name of the template, or a number below 65535", "%q is no user", u)
}

func (c *checker) scheduler(s *Scheduler) {
	within(c, "max_active_sessions", s.MaxActiveSessions, 1, maxCount)
	within(c, "queue_length", s.QueueLength, 1, maxCount)
	within(c, "cpu_overcommit_ratio", s.CPUOvercommitRatio, 0.1, 64)
	within(c, "memory_overcommit_ratio", s.MemoryOvercommitRatio, 0.1, 16)
	within(c, "task_timeout_seconds", s.TaskTimeoutSeconds, 1, maxSeconds)
	names := map[string]bool{}
	for i, p := range s.PriorityLevels {
		at := fmt.Sprintf("priority_levels[%d]", i)
		if !priorityRE.MatchString(p.Name) {
			c.bad(at+".name", "use 1 to 63 letters, digits, _ . or -", "%q is not allowed", p.Name)
		}
		if names[p.Name] {
			c.bad(at+".name", "give each level its own name", "%q is given twice", p.Name)
		}
		names[p.Name] = true
		if p.Weight < 1 || p.Weight > 1_000_000 {
			c.bad(at+".weight", "give a weight from 1 to 1000000", "%d is not a weight", p.Weight)
		}
	}
	p := s.SandboxPool
	for _, f := range []struct {
		name string
		v    int
	}{{"min_idle", p.MinIdle}, {"max_idle", p.MaxIdle}, {"idle_scale_up_step", p.IdleScaleUpStep}, {"declared_peak", p.DeclaredPeak}} {
		if f.v < 0 || f.v > maxCount {
			c.bad("sandbox_pool."+f.name, "give a number from 0 up", "%d is impossible", f.v)
		}
	}
	if c.said("sandbox_pool.max_idle") && p.MaxIdle < p.MinIdle || p.MaxIdle > 0 && p.MaxIdle < p.MinIdle {
		c.bad("sandbox_pool.max_idle", fmt.Sprintf("give at least min_idle (%d)", p.MinIdle), "%d is less than min_idle", p.MaxIdle)
	}
}

// clean tells whether p is an absolute path without . or .. and without a trailing slash.
func clean(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p && len(p) < 1024 && !strings.ContainsAny(p, "\x00\n")
}

// below tells whether p is dir or inside of it.
func below(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
