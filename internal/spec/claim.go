package spec

import (
	"slices"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// Claim gives the runtime's plain data of a resolved spec. Env is left to the
// caller, who alone knows the session's secrets.
func (s *Sandbox) Claim() runtime.Claim {
	c := runtime.Claim{
		Limits:        s.Limits(),
		Hostname:      s.Hostname,
		User:          s.User,
		WritableDirs:  slices.DeleteFunc(slices.Clone(s.FS.WritableDirs), alwaysTmpfs),
		StoreSize:     int64(s.FS.WritableSizeLimit),
		Store:         s.FS.WritableStore,
		TmpSize:       int64(s.FS.TmpSizeLimit),
		Seccomp:       runtime.Seccomp{Profile: s.Seccomp.Profile, AllowExtra: slices.Clone(s.Seccomp.AllowExtra)},
		NewPrivileges: s.NewPrivileges,
		Rlimits:       runtime.Rlimits{NoFile: s.Rlimits.NoFile, FSize: uint64(s.Rlimits.FSize), Stack: uint64(s.Rlimits.Stack)},
	}
	if c.Seccomp.Profile == profileAlias {
		c.Seccomp.Profile = ProfileDefault
	}
	for _, m := range s.FS.Mounts {
		c.Mounts = append(c.Mounts, runtime.DataMount{Source: m.Source, Target: m.Target})
	}
	return c
}

// Limits gives the resource limits alone, as SetLimits takes them.
func (s *Sandbox) Limits() runtime.Limits {
	return runtime.Limits{
		Memory:     int64(s.MemLimit),
		CPU:        s.CPULimit,
		CPURequest: s.CPURequest,
		Pids:       int64(s.PidLimit),
		ReadBPS:    int64(s.IOLimit.ReadBPS),
		WriteBPS:   int64(s.IOLimit.WriteBPS),
	}
}
