// Package specwire turns a spec into its message of dsec.v1 and back, for the gateway and the
// command line.
package specwire

import (
	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/spec"
)

// From is To's inverse; a test walks every field. What the message does not say stays unsaid.
func From(w *dsecv1.Spec) spec.Sandbox {
	s := spec.Sandbox{
		Name: w.GetName(), Runtime: w.GetRuntime(), CPULimit: w.GetCpuLimit(), CPURequest: w.GetCpuRequest(), MemLimit: spec.Bytes(w.GetMemLimit()), PidLimit: int(w.GetPidLimit()),
		IOLimit: spec.IO{ReadBPS: spec.Bytes(w.GetIoLimit().GetReadBps()), WriteBPS: spec.Bytes(w.GetIoLimit().GetWriteBps())},
		User:    w.GetUser(), Hostname: w.GetHostname(),
		FS: spec.FS{
			WritableDirs: w.GetFs().GetWritableDirs(), WritableSizeLimit: spec.Bytes(w.GetFs().GetWritableSizeLimit()),
			WritableStore: w.GetFs().GetWritableStore(), TmpSizeLimit: spec.Bytes(w.GetFs().GetTmpSizeLimit()),
		},
		Network: FromNetwork(w.GetNetwork()),
		Seccomp: spec.Seccomp{Profile: w.GetSeccomp().GetProfile(), AllowExtra: w.GetSeccomp().GetAllowExtra()},
		Session: spec.Session{
			MaxIdleSeconds: int(w.GetSession().GetMaxIdleSeconds()), HeartbeatInterval: int(w.GetSession().GetHeartbeatInterval()),
			MaxRuntimeSeconds: int(w.GetSession().GetMaxRuntimeSeconds()), MaxSuspendedSeconds: int(w.GetSession().GetMaxSuspendedSeconds()),
		},
		Rlimits:       spec.Rlimits{NoFile: w.GetRlimits().GetNofile(), FSize: spec.Bytes(w.GetRlimits().GetFsize()), Stack: spec.Bytes(w.GetRlimits().GetStack())},
		NewPrivileges: w.GetNewPrivileges(),
	}
	if r := w.GetFs().GetRootfs(); r != nil {
		s.FS.RootFS.ReadOnly = r.Readonly
	}
	for _, m := range w.GetFs().GetMounts() {
		s.FS.Mounts = append(s.FS.Mounts, spec.DataMount{Source: m.GetSource(), Target: m.GetTarget(), ReadOnly: m.Readonly})
	}
	return s
}

// To gives the message. Unsaid fields stay unset.
func To(s *spec.Sandbox) *dsecv1.Spec {
	w := &dsecv1.Spec{
		Name: s.Name, Runtime: s.Runtime, CpuLimit: s.CPULimit, CpuRequest: s.CPURequest, MemLimit: int64(s.MemLimit), PidLimit: int32(s.PidLimit),
		User: s.User, Hostname: s.Hostname, NewPrivileges: s.NewPrivileges,
		Fs: &dsecv1.FileSystem{
			WritableDirs: s.FS.WritableDirs, WritableSizeLimit: int64(s.FS.WritableSizeLimit),
			WritableStore: s.FS.WritableStore, TmpSizeLimit: int64(s.FS.TmpSizeLimit),
		},
		Network: ToNetwork(&s.Network),
		Seccomp: &dsecv1.Seccomp{Profile: s.Seccomp.Profile, AllowExtra: s.Seccomp.AllowExtra},
		Session: &dsecv1.Clocks{
			MaxIdleSeconds: int32(s.Session.MaxIdleSeconds), HeartbeatInterval: int32(s.Session.HeartbeatInterval),
			MaxRuntimeSeconds: int32(s.Session.MaxRuntimeSeconds), MaxSuspendedSeconds: int32(s.Session.MaxSuspendedSeconds),
		},
	}
	if s.IOLimit != (spec.IO{}) {
		w.IoLimit = &dsecv1.IOLimit{ReadBps: int64(s.IOLimit.ReadBPS), WriteBps: int64(s.IOLimit.WriteBPS)}
	}
	if s.Rlimits != (spec.Rlimits{}) {
		w.Rlimits = &dsecv1.Rlimits{Nofile: s.Rlimits.NoFile, Fsize: int64(s.Rlimits.FSize), Stack: int64(s.Rlimits.Stack)}
	}
	if s.FS.RootFS.ReadOnly != nil {
		w.Fs.Rootfs = &dsecv1.RootFS{Readonly: s.FS.RootFS.ReadOnly}
	}
	for _, m := range s.FS.Mounts {
		w.Fs.Mounts = append(w.Fs.Mounts, &dsecv1.DataMount{Source: m.Source, Target: m.Target, Readonly: m.ReadOnly})
	}
	return w
}
