package spec

import "time"

// Bytes is a size in bytes. In YAML and JSON it is written as an integer or
// with a binary suffix: 16Mi, 2Gi, 512Ki.
type Bytes int64

// Sandbox is the declared environment of a session: the seeds' sandbox_spec.
// The zero value of a field means "not said"; Resolve fills defaults. It is
// plain data and safe to copy; slices are shared.
type Sandbox struct {
	Name     string  `yaml:"name,omitempty" json:"name,omitempty"`
	Runtime  string  `yaml:"runtime,omitempty" json:"runtime,omitempty"`     // native; docker, gvisor, firecracker come later
	CPULimit float64 `yaml:"cpu_limit,omitempty" json:"cpu_limit,omitempty"` // cores
	// CPURequest is the part of cpu_limit that is promised: admission counts it, at
	// cpu_overcommit_ratio. Unsaid, nothing is promised: the box shares what is free, up to
	// cpu_limit (agents wait for their model most of the time).
	CPURequest float64 `yaml:"cpu_request,omitempty" json:"cpu_request,omitempty"`
	MemLimit   Bytes   `yaml:"mem_limit,omitempty" json:"mem_limit,omitempty"` // hard, promised once
	PidLimit   int     `yaml:"pid_limit,omitempty" json:"pid_limit,omitempty"`
	IOLimit    IO      `yaml:"io_limit,omitempty" json:"io_limit,omitzero"`
	User       string  `yaml:"user,omitempty" json:"user,omitempty"` // default user of ops: "user" (1000) or "root"
	Hostname   string  `yaml:"hostname,omitempty" json:"hostname,omitempty"`
	FS         FS      `yaml:"fs,omitempty" json:"fs,omitzero"`
	Network    Network `yaml:"network,omitempty" json:"network,omitzero"`
	Seccomp    Seccomp `yaml:"seccomp,omitempty" json:"seccomp,omitzero"`
	Session    Session `yaml:"session,omitempty" json:"session,omitzero"`
	Rlimits    Rlimits `yaml:"rlimits,omitempty" json:"rlimits,omitzero"`
	// NewPrivileges lifts no_new_privs so that sudo works; the bounding set and seccomp stay.
	NewPrivileges bool `yaml:"new_privileges,omitempty" json:"new_privileges,omitempty"`
}

// IO limits a box's block I/O, bytes a second; zero is unlimited.
type IO struct {
	ReadBPS  Bytes `yaml:"read_bps,omitempty" json:"read_bps,omitempty"`
	WriteBPS Bytes `yaml:"write_bps,omitempty" json:"write_bps,omitempty"`
}

// FS is the file system of a box.
type FS struct {
	RootFS RootFS `yaml:"rootfs,omitempty" json:"rootfs,omitzero"`
	// WritableDirs are absolute paths. /tmp and /dev/shm are always tmpfs.
	WritableDirs []string `yaml:"writable_dirs,omitempty" json:"writable_dirs,omitempty"`
	// WritableSizeLimit bounds all persistent writes of the box together.
	WritableSizeLimit Bytes `yaml:"writable_size_limit,omitempty" json:"writable_size_limit,omitempty"`
	// WritableStore is auto, tmpfs or disk.
	WritableStore string `yaml:"writable_store,omitempty" json:"writable_store,omitempty"`
	// TmpSizeLimit bounds /tmp and /dev/shm together.
	TmpSizeLimit Bytes `yaml:"tmp_size_limit,omitempty" json:"tmp_size_limit,omitempty"`
	// Mounts are read-only data mounts from the operator's allow-list.
	Mounts []DataMount `yaml:"mounts,omitempty" json:"mounts,omitempty"`
}

// RootFS says whether the root is read-only (nil and true) or a writable overlay (false).
// It is written as "readonly" or "writable"; the mapping {readonly: bool} is read too.
type RootFS struct {
	ReadOnly *bool `yaml:"readonly,omitempty" json:"readonly,omitempty"`
}

// DataMount shows a host directory read-only in the box. It may be written as
// "source:target" or "source:target:ro". ReadOnly exists to be refused: nil and
// true are the only values that start.
type DataMount struct {
	Source   string `yaml:"source" json:"source"`
	Target   string `yaml:"target" json:"target"`
	ReadOnly *bool  `yaml:"readonly,omitempty" json:"readonly,omitempty"`
}

// Network is the way out of a box; package egress/policy says what each form means, and checks it.
type Network struct {
	EgressPolicy string `yaml:"egress_policy,omitempty" json:"egress_policy,omitempty"` // deny, whitelist, open
	// AllowedDomains are NAME[:PORTS][/PROTOCOL], *.NAME for all names below; ?ech=allow and ?credential=NAME may follow.
	AllowedDomains []string `yaml:"allowed_domains,omitempty" json:"allowed_domains,omitempty"`
	// AllowedIPs are ADDRESS[/BITS][:PORTS][/PROTOCOL].
	AllowedIPs []string `yaml:"allowed_ips,omitempty" json:"allowed_ips,omitempty"`
	// Bundles names groups of rules of the operator or of the template's own tool configuration: pypi, npm, ….
	Bundles map[string]bool `yaml:"bundles,omitempty" json:"bundles,omitempty"`
	Limits  NetworkLimits   `yaml:"limits,omitempty" json:"limits,omitzero"`
	// Phases are whole policies by name (setup, agent, verify), between which the session is switched. It begins
	// with Phase: unsaid, with setup where there is one, else with the fields above.
	Phases map[string]NetworkPhase `yaml:"phases,omitempty" json:"phases,omitempty"`
	Phase  string                  `yaml:"phase,omitempty" json:"phase,omitempty"`
	// Preflight resolves the names before the session is RUNNING and fails it where one does not (resolve, the
	// default), connects to their ports as well (reach), or does neither (off).
	Preflight string `yaml:"preflight,omitempty" json:"preflight,omitempty"`
}

// NetworkPhase is one policy of several.
type NetworkPhase struct {
	EgressPolicy   string          `yaml:"egress_policy,omitempty" json:"egress_policy,omitempty"`
	AllowedDomains []string        `yaml:"allowed_domains,omitempty" json:"allowed_domains,omitempty"`
	AllowedIPs     []string        `yaml:"allowed_ips,omitempty" json:"allowed_ips,omitempty"`
	Bundles        map[string]bool `yaml:"bundles,omitempty" json:"bundles,omitempty"`
	Limits         NetworkLimits   `yaml:"limits,omitempty" json:"limits,omitzero"`
}

// NetworkLimits bound what a box's network may cost; zero is the default, or unlimited for the first two.
type NetworkLimits struct {
	Bandwidth         Bytes `yaml:"bandwidth,omitempty" json:"bandwidth,omitempty"` // a second, both directions together
	Bytes             Bytes `yaml:"bytes,omitempty" json:"bytes,omitempty"`         // in all, until the policy is switched
	Connections       int   `yaml:"connections,omitempty" json:"connections,omitempty"`
	ConnectsPerSecond int   `yaml:"connects_per_second,omitempty" json:"connects_per_second,omitempty"`
	DNSPerSecond      int   `yaml:"dns_per_second,omitempty" json:"dns_per_second,omitempty"`
	DNSNamesPerMinute int   `yaml:"dns_names_per_minute,omitempty" json:"dns_names_per_minute,omitempty"`
	AuditPerSecond    int   `yaml:"audit_per_second,omitempty" json:"audit_per_second,omitempty"`
	RefusalsPerSecond int   `yaml:"refusals_per_second,omitempty" json:"refusals_per_second,omitempty"`
}

// Seccomp names a profile (default, network, build, debug; default_deny_allowlist
// is an alias of default) and system calls allowed on top of it.
type Seccomp struct {
	Profile    string   `yaml:"profile,omitempty" json:"profile,omitempty"`
	AllowExtra []string `yaml:"allow_extra,omitempty" json:"allow_extra,omitempty"`
}

// Session holds a session's clocks, in seconds.
type Session struct {
	MaxIdleSeconds    int `yaml:"max_idle_seconds,omitempty" json:"max_idle_seconds,omitempty"`
	HeartbeatInterval int `yaml:"heartbeat_interval,omitempty" json:"heartbeat_interval,omitempty"`
	MaxRuntimeSeconds int `yaml:"max_runtime_seconds,omitempty" json:"max_runtime_seconds,omitempty"`
	// MaxSuspendedSeconds bounds one suspension, which max_runtime_seconds does not count.
	MaxSuspendedSeconds int `yaml:"max_suspended_seconds,omitempty" json:"max_suspended_seconds,omitempty"`
}

// Rlimits of agent processes; zero means the default.
type Rlimits struct {
	NoFile uint64 `yaml:"nofile,omitempty" json:"nofile,omitempty"`
	FSize  Bytes  `yaml:"fsize,omitempty" json:"fsize,omitempty"`
	Stack  Bytes  `yaml:"stack,omitempty" json:"stack,omitempty"`
}

// Scheduler is the seeds' scheduler_config.
type Scheduler struct {
	MaxActiveSessions     int             `yaml:"max_active_sessions,omitempty" json:"max_active_sessions,omitempty"`
	QueueLength           int             `yaml:"queue_length,omitempty" json:"queue_length,omitempty"`
	PriorityLevels        []PriorityLevel `yaml:"priority_levels,omitempty" json:"priority_levels,omitempty"`
	CPUOvercommitRatio    float64         `yaml:"cpu_overcommit_ratio,omitempty" json:"cpu_overcommit_ratio,omitempty"`
	MemoryOvercommitRatio float64         `yaml:"memory_overcommit_ratio,omitempty" json:"memory_overcommit_ratio,omitempty"`
	SandboxPool           Pool            `yaml:"sandbox_pool,omitempty" json:"sandbox_pool,omitzero"`
	TaskTimeoutSeconds    int             `yaml:"task_timeout_seconds,omitempty" json:"task_timeout_seconds,omitempty"`
}

// PriorityLevel names a queue weight.
type PriorityLevel struct {
	Name   string `yaml:"name" json:"name"`
	Weight int    `yaml:"weight" json:"weight"`
}

// Pool sizes the warm pool.
type Pool struct {
	MinIdle         int `yaml:"min_idle,omitempty" json:"min_idle,omitempty"`
	MaxIdle         int `yaml:"max_idle,omitempty" json:"max_idle,omitempty"`
	IdleScaleUpStep int `yaml:"idle_scale_up_step,omitempty" json:"idle_scale_up_step,omitempty"`
	// DeclaredPeak is the expected peak of concurrent creates; at start the target is 1.5 × it.
	DeclaredPeak int `yaml:"declared_peak,omitempty" json:"declared_peak,omitempty"`
}

// ReadOnlyRoot tells whether the root is read-only.
func (s *Sandbox) ReadOnlyRoot() bool { return s.FS.RootFS.ReadOnly == nil || *s.FS.RootFS.ReadOnly }

// MaxIdle is the idle clock; zero means none.
func (s *Session) MaxIdle() time.Duration { return time.Duration(s.MaxIdleSeconds) * time.Second }

// MaxRuntime is the run-time clock; zero means none.
func (s *Session) MaxRuntime() time.Duration { return time.Duration(s.MaxRuntimeSeconds) * time.Second }

// MaxSuspended bounds one suspension; zero means no bound.
func (s *Session) MaxSuspended() time.Duration {
	return time.Duration(s.MaxSuspendedSeconds) * time.Second
}
