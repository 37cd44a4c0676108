package mcp

import (
	"context"
	"maps"

	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/specwire"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

type createIn struct {
	Template     string            `json:"template,omitempty" jsonschema:"name of the environment, such as base or python; default as the server was started"`
	Memory       string            `json:"memory,omitempty" jsonschema:"memory limit, such as 512Mi or 2Gi"`
	CPU          float64           `json:"cpu,omitempty" jsonschema:"cores, may be a fraction"`
	User         string            `json:"user,omitempty" jsonschema:"who commands run as: user or root"`
	WritableRoot *bool             `json:"writable_root,omitempty" jsonschema:"whether the whole file tree can be changed, for installing packages; else /workspace, the home and /tmp"`
	Env          map[string]string `json:"env,omitempty" jsonschema:"environment variables of every command"`
	Labels       map[string]string `json:"labels,omitempty" jsonschema:"labels, for finding the session again"`
	Keep         bool              `json:"keep,omitempty" jsonschema:"leave the session running when this connection ends"`
}

type sessionOut struct {
	failure
	Session  string            `json:"session,omitempty" jsonschema:"id of the session"`
	Phase    string            `json:"phase,omitempty" jsonschema:"RUNNING, SUSPENDED, COMPLETED or FAILED, or on the way to RUNNING"`
	Reason   string            `json:"reason,omitempty" jsonschema:"why it is in that phase"`
	Template string            `json:"template,omitempty"`
	User     string            `json:"user,omitempty" jsonschema:"who commands run as"`
	Memory   int64             `json:"memory_bytes,omitempty"`
	CPU      float64           `json:"cpu,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Kept     bool              `json:"kept,omitempty" jsonschema:"it outlives the connection"`
}

func (s *Server) create(ctx context.Context, cn *connection, in createIn) (sessionOut, error) {
	o, err := s.options(in)
	if err != nil {
		return sessionOut{}, err
	}
	if err := cn.begin(); err != nil {
		return sessionOut{}, err
	}
	var session *dsec.Session
	if !in.Keep {
		o.Lease, err = cn.owner(ctx)
	}
	if err == nil {
		session, err = cn.c.Create(ctx, o)
	}
	if err != nil {
		cn.made("", false)
		return sessionOut{}, err
	}
	cn.made(session.ID(), in.Keep)
	return cn.describe(session.Info()), nil
}

// options lays what the call says over what the server was started with.
func (s *Server) options(in createIn) (dsec.CreateOptions, error) {
	o := s.o.Session
	o.SpecYAML = ""
	if in.Template != "" {
		o.Template = in.Template
	}
	o.Env, o.Labels = merged(o.Env, in.Env), merged(o.Labels, in.Labels)
	over := spec.Sandbox{CPULimit: in.CPU, User: in.User}
	if in.Memory != "" {
		if err := over.MemLimit.Set(in.Memory); err != nil {
			return o, invalid("memory "+in.Memory, err.Error(), "write it as 512Mi")
		}
	}
	if in.WritableRoot != nil {
		ro := !*in.WritableRoot
		over.FS.RootFS.ReadOnly = &ro
	}
	sandbox := spec.Merge(s.o.Spec, over)
	o.Spec = specwire.To(&sandbox)
	return o, nil
}

func merged(base, over map[string]string) map[string]string {
	m := maps.Clone(base)
	if m == nil {
		return over
	}
	maps.Copy(m, over)
	return m
}

// describe shows a session.
func (cn *connection) describe(i *dsec.Info) sessionOut {
	cn.mu.Lock()
	kept := cn.own[i.GetId()]
	cn.mu.Unlock()
	return sessionOut{
		Session: i.GetId(), Phase: i.GetPhase(), Reason: i.GetReason(), Template: i.GetTemplate(), User: i.GetSpec().GetUser(),
		Memory: i.GetSpec().GetMemLimit(), CPU: i.GetSpec().GetCpuLimit(), Labels: i.GetLabels(), Kept: kept,
	}
}

type listIn struct {
	All bool `json:"all,omitempty" jsonschema:"also those that this connection did not make"`
}

type listOut struct {
	failure
	Sessions []sessionOut `json:"sessions,omitzero"` // empty, not absent, when there are none
	More     bool         `json:"more,omitempty" jsonschema:"there are more than are shown"`
}

// maxListed bounds what one list shows.
const maxListed = 100

func (s *Server) list(ctx context.Context, cn *connection, in listIn) (listOut, error) {
	out := listOut{Sessions: []sessionOut{}}
	if in.All {
		live := []string{dsec.Pending, dsec.Scheduled, dsec.Running, dsec.Suspended}
		for i, err := range cn.c.List(ctx, dsec.ListOptions{Phases: live, NewestFirst: true, PageSize: maxListed}) {
			if err != nil {
				return out, err
			}
			if len(out.Sessions) == maxListed {
				out.More = true
				break
			}
			out.Sessions = append(out.Sessions, cn.describe(i))
		}
		return out, nil
	}
	for _, id := range cn.ids() {
		i, err := cn.c.Session(id).Get(ctx)
		if dsec.IsReason(err, "not_found") {
			cn.forget(id)
			continue
		}
		if err != nil {
			return out, err
		}
		if p := i.GetPhase(); p == dsec.Completed || p == dsec.Failed {
			cn.forget(id)
			continue
		}
		out.Sessions = append(out.Sessions, cn.describe(i))
	}
	return out, nil
}

type stopIn struct {
	Session string `json:"session" jsonschema:"id of the session"`
	Reason  string `json:"reason,omitempty" jsonschema:"kept with the session"`
}

func (s *Server) stop(ctx context.Context, cn *connection, in stopIn) (sessionOut, error) {
	session := cn.c.Session(in.Session)
	if err := session.Stop(ctx, in.Reason); err != nil {
		return sessionOut{}, err
	}
	out := cn.describe(session.Info())
	cn.forget(in.Session)
	return out, nil
}
