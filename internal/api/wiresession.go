package api

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/specwire"
)

func wireSession(s *control.Session) *dsecv1.Session {
	if s == nil {
		return nil
	}
	return &dsecv1.Session{
		Id: s.ID, Project: s.Project, Job: s.Job, Template: s.Template, Labels: s.Labels, Env: s.Env, Spec: specwire.To(&s.Spec),
		Phase: s.Phase, Desired: s.Desired, Reclaim: s.Reclaim, Reason: utf8Text(s.Reason), Error: wireError(errdefs.Public(s.Error)),
		Node: s.Node, Box: s.Box, Pooled: s.Pooled, ColdReason: s.ColdReason, Version: s.Version,
		Created: wireTime(s.Created), Started: wireTime(s.Started), Ended: wireTime(s.Ended), Updated: wireTime(s.Updated),
		Deadline: wireTime(s.Deadline), LifetimeMs: s.Lifetime.Milliseconds(), AtDeadline: s.AtDeadline,
		LeaseId: s.Lease,
	}
}

func wireCreated(r control.CreateResult) *dsecv1.SessionResult {
	out := &dsecv1.SessionResult{Session: wireSession(r.Session), Error: wireError(errdefs.Public(r.Err))}
	if r.Session != nil {
		out.Id = r.Session.ID
	}
	return out
}

func wireOutcomes(rs []control.StopResult) []*dsecv1.SessionResult {
	out := make([]*dsecv1.SessionResult, len(rs))
	for i, r := range rs {
		out[i] = &dsecv1.SessionResult{Id: r.ID, Session: wireSession(r.Session), Error: wireError(errdefs.Public(r.Err))}
	}
	return out
}

func wireBox(b *node.Inspect) *dsecv1.Box {
	return &dsecv1.Box{
		Id: b.Box, State: b.State, Runtime: b.Runtime, Template: b.Template, Since: wireTime(b.Since), LastActive: wireTime(b.LastActive),
		IdleMs: b.IdleFor.Milliseconds(), RunningOps: int32(b.RunningOps), Pooled: b.Pooled, ColdReason: b.ColdReason,
		Limits: &dsecv1.Limits{Memory: b.Limits.Memory, Cpu: b.Limits.CPU, Pids: b.Limits.Pids, ReadBps: b.Limits.ReadBPS, WriteBps: b.Limits.WriteBPS},
		Network: &dsecv1.BoxNetwork{
			Phase: b.Network.Phase, EgressPolicy: string(b.Network.Mode), Open: b.Network.Stats.Open, Allowed: b.Network.Stats.Allowed,
			Refused: b.Network.Stats.Refused, SentBytes: b.Network.Stats.Sent, ReceivedBytes: b.Network.Stats.Received,
		},
		Usage: &dsecv1.Usage{
			Memory: b.Usage.Memory, MemoryPeak: b.Usage.MemoryPeak, MemoryLimit: b.Usage.MemoryLimit, CpuMs: float64(b.Usage.CPU) / float64(time.Millisecond),
			Pids: b.Usage.Pids, ReadBytes: b.Usage.ReadBytes, WriteBytes: b.Usage.WriteBytes, StoreUsed: b.Usage.StoreUsed, StoreLimit: b.Usage.StoreLimit, OomKills: b.Usage.OOMKills,
		},
	}
}

// wireTime leaves a time that never came unset.
func wireTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func wireKey(k control.Key) *dsecv1.Key {
	return &dsecv1.Key{Id: k.ID, Project: k.Project, Name: k.Name, Hint: k.Hint, Created: wireTime(k.Created), Revoked: wireTime(k.Revoked)}
}
