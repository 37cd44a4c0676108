package spec

import "slices"

// Default is the production spec that everything else is laid over. Sizes that
// follow from others (writable_size_limit, tmp_size_limit) are filled by Resolve.
func Default() Sandbox {
	readOnly := true
	return Sandbox{
		Runtime:  RuntimeNative,
		CPULimit: 2,
		MemLimit: 512 * MiB,
		PidLimit: 256,
		User:     "user",
		FS: FS{
			RootFS:        RootFS{ReadOnly: &readOnly},
			WritableDirs:  []string{"/workspace", "/home/user"},
			WritableStore: StoreAuto,
		},
		Network: Network{EgressPolicy: EgressDeny},
		Seccomp: Seccomp{Profile: ProfileDefault},
		Session: Session{MaxIdleSeconds: 300, HeartbeatInterval: 15, MaxRuntimeSeconds: 1800, MaxSuspendedSeconds: 24 * 3600},
	}
}

// DefaultScheduler is what a node does when nothing is said. Zero task time-out:
// each spec's own clock counts alone.
func DefaultScheduler() Scheduler {
	return Scheduler{
		MaxActiveSessions:     10_000,
		QueueLength:           20_000,
		CPUOvercommitRatio:    1.5,
		MemoryOvercommitRatio: 1.0,
		SandboxPool:           Pool{MaxIdle: 64, IdleScaleUpStep: 8},
	}
}

// Resolve lays the template's defaults over Default and the session's overrides
// over both: field by field the later one wins, a list replaces a list. The
// result has no unsaid field left that has a default, and its slices are its own.
func Resolve(template, overrides Sandbox) Sandbox {
	s := Default()
	overlay(&s, &template)
	overlay(&s, &overrides)
	if s.FS.WritableSizeLimit == 0 {
		s.FS.WritableSizeLimit = max(s.MemLimit/2, MinWritable)
	}
	if s.FS.TmpSizeLimit == 0 {
		s.FS.TmpSizeLimit = max(s.MemLimit/2, MinWritable)
	}
	if s.Seccomp.Profile == profileAlias {
		s.Seccomp.Profile = ProfileDefault
	}
	s.FS.WritableDirs = slices.DeleteFunc(slices.Clone(s.FS.WritableDirs), alwaysTmpfs)
	s.FS.Mounts = slices.Clone(s.FS.Mounts)
	s.Network = cloneNetwork(s.Network)
	s.Seccomp.AllowExtra = slices.Clone(s.Seccomp.AllowExtra)
	return s
}

// ResolveScheduler lays s over DefaultScheduler.
func ResolveScheduler(s Scheduler) Scheduler {
	d := DefaultScheduler()
	put(&d.MaxActiveSessions, s.MaxActiveSessions)
	put(&d.QueueLength, s.QueueLength)
	put(&d.CPUOvercommitRatio, s.CPUOvercommitRatio)
	put(&d.MemoryOvercommitRatio, s.MemoryOvercommitRatio)
	put(&d.TaskTimeoutSeconds, s.TaskTimeoutSeconds)
	put(&d.SandboxPool.MinIdle, s.SandboxPool.MinIdle)
	put(&d.SandboxPool.MaxIdle, s.SandboxPool.MaxIdle)
	put(&d.SandboxPool.IdleScaleUpStep, s.SandboxPool.IdleScaleUpStep)
	put(&d.SandboxPool.DeclaredPeak, s.SandboxPool.DeclaredPeak)
	d.SandboxPool.MaxIdle = max(d.SandboxPool.MaxIdle, d.SandboxPool.MinIdle)
	d.PriorityLevels = slices.Clone(s.PriorityLevels)
	return d
}

// Merge gives base with every said field of over laid on it, without defaults.
func Merge(base, over Sandbox) Sandbox {
	overlay(&base, &over)
	return base
}

func overlay(s, o *Sandbox) {
	put(&s.Name, o.Name)
	put(&s.Runtime, o.Runtime)
	put(&s.CPULimit, o.CPULimit)
	put(&s.CPURequest, o.CPURequest)
	put(&s.MemLimit, o.MemLimit)
	put(&s.PidLimit, o.PidLimit)
	put(&s.IOLimit.ReadBPS, o.IOLimit.ReadBPS)
	put(&s.IOLimit.WriteBPS, o.IOLimit.WriteBPS)
	put(&s.User, o.User)
	put(&s.Hostname, o.Hostname)
	put(&s.FS.RootFS.ReadOnly, o.FS.RootFS.ReadOnly)
	putSlice(&s.FS.WritableDirs, o.FS.WritableDirs)
	put(&s.FS.WritableSizeLimit, o.FS.WritableSizeLimit)
	put(&s.FS.WritableStore, o.FS.WritableStore)
	put(&s.FS.TmpSizeLimit, o.FS.TmpSizeLimit)
	putSlice(&s.FS.Mounts, o.FS.Mounts)
	overlayNetwork(&s.Network, &o.Network)
	put(&s.Seccomp.Profile, o.Seccomp.Profile)
	putSlice(&s.Seccomp.AllowExtra, o.Seccomp.AllowExtra)
	put(&s.Session.MaxIdleSeconds, o.Session.MaxIdleSeconds)
	put(&s.Session.HeartbeatInterval, o.Session.HeartbeatInterval)
	put(&s.Session.MaxRuntimeSeconds, o.Session.MaxRuntimeSeconds)
	put(&s.Session.MaxSuspendedSeconds, o.Session.MaxSuspendedSeconds)
	put(&s.Rlimits.NoFile, o.Rlimits.NoFile)
	put(&s.Rlimits.FSize, o.Rlimits.FSize)
	put(&s.Rlimits.Stack, o.Rlimits.Stack)
	put(&s.NewPrivileges, o.NewPrivileges)
}

func put[T comparable](dst *T, v T) {
	var zero T
	if v != zero {
		*dst = v
	}
}

// putSlice lets an empty, said list clear the earlier one.
func putSlice[T any](dst *[]T, v []T) {
	if v != nil {
		*dst = v
	}
}
