package api

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/specwire"
	"github.com/dsec-platform/dsec/internal/template"
)

func (s *sessions) Create(ctx context.Context, q *dsecv1.CreateRequest) (*dsecv1.CreateResponse, error) {
	req, err := s.newSessions(ctx, q.GetIdempotencyKey(), q.GetSession())
	if err != nil {
		return nil, err
	}
	results, err := s.cfg.Control.Create(ctx, callerOf(ctx).project, req)
	if err != nil {
		return nil, err
	}
	out := &dsecv1.CreateResponse{Results: make([]*dsecv1.SessionResult, len(results))}
	for i, r := range results {
		out.Results[i] = wireCreated(r)
	}
	return out, nil
}

func (s *sessions) CreateStream(ctx context.Context, q *dsecv1.CreateStreamRequest, stream dsecv1connect.SessionServiceCreateStreamServerStream) error {
	req, err := s.newSessions(ctx, q.GetIdempotencyKey(), q.GetSession())
	if err != nil {
		return err
	}
	items := &itemSender{stream: stream, sent: make([]bool, req.Count)}
	req.OnItem = items.send
	results, err := s.cfg.Control.Create(ctx, callerOf(ctx).project, req)
	for i, r := range results {
		items.send(i, r)
	}
	if err != nil {
		return err
	}
	return items.err
}

// itemSender sends each item once. A client that went away must not hold up the
// create: after the first failure it sends nothing.
type itemSender struct {
	stream dsecv1connect.SessionServiceCreateStreamServerStream
	mu     sync.Mutex
	sent   []bool
	err    error
}

func (t *itemSender) send(i int, r control.CreateResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || i < 0 || i >= len(t.sent) || t.sent[i] {
		return
	}
	t.sent[i] = true
	t.err = t.stream.Send(&dsecv1.CreateStreamResponse{Index: int32(i), Result: wireCreated(r)})
}

// newSessions checks a create and lays its spec over the template's.
func (s *sessions) newSessions(ctx context.Context, key string, q *dsecv1.NewSession) (control.CreateRequest, error) {
	req := control.CreateRequest{
		Key: key, Count: max(int(q.GetCount()), 0), Template: q.GetTemplate(), Env: q.GetEnv(), Secrets: q.GetSecrets(), Labels: q.GetLabels(),
		Job: q.GetJob(), Code: q.GetCode(), CodeDir: q.GetCodeDir(), Priority: q.GetPriority(), NoPool: q.GetNoPool(), NoWait: q.GetNoWait(),
		Lifetime: time.Duration(q.GetLifetimeMs()) * time.Millisecond, AtDeadline: q.GetAtDeadline(), Lease: q.GetLeaseId(),
	}
	if q.GetCount() == 0 {
		req.Count = 1
	}
	if err := checkNewSession(key, q); err != nil {
		return req, err
	}
	over, err := overrides(q)
	if err != nil {
		return req, err
	}
	t, err := s.named(ctx, templateName(req.Template))
	if err != nil {
		return req, err
	}
	req.Template = t.Ref() // the version whose spec this is, whatever is imported meanwhile
	req.Spec = spec.Resolve(t.Spec, over)
	if _, err := spec.Check(&req.Spec, s.cfg.Runtimes...); err != nil {
		return req, err
	}
	if extra := req.Spec.Seccomp.AllowExtra; len(extra) > 0 && s.cfg.Seccomp != nil {
		if err := s.cfg.Seccomp(req.Spec.Seccomp.Profile, extra); err != nil {
			return req, err
		}
	}
	if key != "" {
		req.Digest, err = s.digest(q)
	}
	return req, err
}

// named is the version that a create means now.
func (s *sessions) named(ctx context.Context, ref string) (*template.Template, error) {
	if s.cfg.Named == nil {
		return s.cfg.Templates.Get(ctx, ref)
	}
	c := callerOf(ctx)
	return s.cfg.Named(ctx, c.project, c.operator, ref)
}

func templateName(given string) string {
	if given == "" {
		return "base"
	}
	return given
}

func checkNewSession(key string, q *dsecv1.NewSession) error {
	if n := q.GetCount(); n < 0 || n > maxSessions {
		return bad("session.count", "use 1 to 32,768", "is %d", n)
	}
	if err := checkLifetime("session.lifetime_ms", q.GetLifetimeMs()); err != nil {
		return err
	}
	if n := len(q.GetCode()); n > maxCode {
		return errdefs.Limitf(errdefs.TooLarge, "field session.code", "send at most 64 MiB, and the rest by PUT /v1/sessions/{id}/tar", "has %d bytes", n)
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"idempotency_key", key, 128},
		{"session.template", q.GetTemplate(), 256},
		{"session.job", q.GetJob(), 128},
		{"session.priority", q.GetPriority(), 63},
	} {
		if err := checkText(f.name, f.value, f.most); err != nil {
			return err
		}
	}
	if err := optionalLease("session.lease_id", q.GetLeaseId()); err != nil {
		return err
	}
	if dir := q.GetCodeDir(); dir != "" {
		if len(q.GetCode()) == 0 {
			return bad("session.code_dir", "give session.code too", "is given without code")
		}
		if _, err := checkPath("session.code_dir", dir, nil); err != nil {
			return err
		}
		if dir[0] != '/' {
			return bad("session.code_dir", "give an absolute path", "%q is relative", clip(dir))
		}
	}
	if err := checkEnv("session.env", q.GetEnv(), maxSessionEnv); err != nil {
		return err
	}
	if err := checkEnv("session.secrets", q.GetSecrets(), maxSecrets); err != nil {
		return err
	}
	for k := range q.GetSecrets() {
		if _, twice := q.GetEnv()[k]; twice {
			return bad("session.secrets", "give each variable once", "%q is in session.env too", clip(k))
		}
	}
	if err := checkLabels("session.labels", q.GetLabels()); err != nil {
		return err
	}
	stored := 0
	for _, m := range []map[string]string{q.GetEnv(), q.GetLabels()} {
		for k, v := range m {
			stored += len(k) + len(v)
		}
	}
	if n := stored * int(q.GetCount()); n > maxStored {
		return errdefs.Limitf(errdefs.TooLarge, "field session.count", "ask for fewer at once, or put large data into session.code", "env and labels of all sessions are %d bytes, over %d", n, maxStored)
	}
	return nil
}

// overrides reads the spec in whichever form it came.
func overrides(q *dsecv1.NewSession) (spec.Sandbox, error) {
	switch env := q.GetEnvironment().(type) {
	case *dsecv1.NewSession_Spec:
		return specwire.From(env.Spec), nil
	case *dsecv1.NewSession_SpecYaml:
		doc, err := spec.Parse("spec_yaml", []byte(env.SpecYaml))
		if err != nil {
			return spec.Sandbox{}, errdefs.From(err)
		}
		if doc.Sandbox == nil {
			return spec.Sandbox{}, bad("session.spec_yaml", "write it under the key sandbox_spec", "holds no sandbox_spec")
		}
		return *doc.Sandbox, nil
	}
	return spec.Sandbox{}, nil
}

// digest is over everything that a create asks for, secrets included.
func (a *API) digest(q *dsecv1.NewSession) (string, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(q)
	if err != nil {
		return "", err
	}
	return a.cfg.Digests.Sum([]byte("create"), b), nil
}
