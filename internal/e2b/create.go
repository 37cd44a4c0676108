package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// Seconds that a sandbox lives if its creator does not say: by the older and the newer call.
const (
	timeoutV1 = 15
	timeoutV2 = 300
	// maxSeconds is the longest time-out, 30 days.
	maxSeconds = 30 * 24 * 3600
)

// placing bounds the wait for room. SDKs give a request 60 seconds and would not learn why it took longer.
const placing = 50 * time.Second

// newSandbox is a create, read and checked.
type newSandbox struct {
	template   string
	timeout    time.Duration
	metadata   map[string]string
	env        map[string]string
	network    network
	pauses     bool // at its time-out
	autoResume bool
}

func (f *Facade) createV1(w http.ResponseWriter, r *http.Request) error {
	return f.create(w, r, timeoutV1)
}

func (f *Facade) createV2(w http.ResponseWriter, r *http.Request) error {
	return f.create(w, r, timeoutV2)
}

func (f *Facade) create(w http.ResponseWriter, r *http.Request, standard int) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	digest := f.cfg.Sandboxes.tokens.digestOf(r.URL.Path, o)
	q, err := readNewSandbox(o, standard)
	if err != nil {
		return err
	}
	key := r.Header.Get("Idempotency-Key")
	if key != "" && !idempotencyKey.MatchString(key) {
		return errdefs.Userf(errdefs.InvalidArgument, "header Idempotency-Key", "use 1 to 255 of a-z, 0-9 and -", "%q is not one", Clip(key))
	}
	c := CallerOf(r.Context())
	got, err := f.cfg.Templates.Resolve(r.Context(), c, q.template)
	if err != nil {
		return lackingTemplate(err, q.template)
	}
	req, err := f.request(q, got)
	if err != nil {
		return err
	}
	if key != "" {
		req.Key, req.Digest = "e2b/"+key, digest
	}
	ctx, cancel := context.WithTimeout(r.Context(), placing)
	defer cancel()
	results, err := f.cfg.Sandboxes.control.Create(ctx, c.Project, req)
	if err != nil {
		if ctx.Err() != nil && r.Context().Err() == nil {
			return late(err, got, key)
		}
		return err
	}
	if err := results[0].Err; err != nil {
		return tooLarge(err, got)
	}
	if over(results[0].Session) {
		return errdefs.Userf(errdefs.Conflict, "header Idempotency-Key", "use a new key for a new sandbox", "the sandbox that it stands for has ended")
	}
	WriteJSON(w, http.StatusCreated, f.wireSandbox(results[0].Session))
	return nil
}

// late says why a sandbox was not there in time.
func late(err error, t *Resolved, key string) error {
	switch {
	case !errors.Is(err, control.ErrStarting):
		return errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "sandbox", "there was no room for it for %s", placing)
	case t.Template.Start.IsZero():
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "sandbox", "it was not made within %s", placing)
	}
	remedy := "let it become ready sooner: prepare in the build what it does first; with an Idempotency-Key the sandbox is kept, and asked for again with the same"
	if key != "" {
		remedy = "ask again with the same Idempotency-Key: the sandbox is kept until it is ready"
	}
	return errdefs.Userf(errdefs.TimedOut, "start command of template "+t.ID, remedy, "the sandbox runs, but its start and ready commands took longer than %s", placing)
}

var idempotencyKey = regexp.MustCompile(`^[a-z0-9-]{1,255}$`)

// digestOf is over everything that a request asks for, secrets included. The fields of an object are hashed in the order of their names.
func (t *Tokens) digestOf(path string, o *object) string {
	b, _ := json.Marshal(o.fields) // raw messages that were just read
	return t.key.Sum([]byte("create"), []byte(path), b)
}

func readNewSandbox(o *object, standard int) (q newSandbox, err error) {
	if q.template, err = o.text("templateID"); err != nil {
		return q, err
	}
	if q.template == "" || len(q.template) > 512 {
		return q, errdefs.Userf(errdefs.InvalidArgument, "field templateID", "name a template, or an image", "has %d bytes", len(q.template))
	}
	seconds, err := o.seconds("timeout")
	if err != nil {
		return q, err
	}
	if seconds < 0 {
		seconds = standard
	}
	if q.timeout = time.Duration(seconds) * time.Second; seconds == 0 {
		return q, errdefs.Userf(errdefs.InvalidArgument, "field timeout", "use 1 second or more", "a sandbox that lives for no time cannot be used")
	}
	if q.metadata, err = o.strings("metadata"); err != nil {
		return q, err
	}
	if q.env, err = o.strings("envVars"); err != nil {
		return q, err
	}
	if err := checkMetadata(q.metadata); err != nil {
		return q, err
	}
	if err := checkEnv(q.env); err != nil {
		return q, err
	}
	if q.network, err = readNetwork(o); err != nil {
		return q, err
	}
	if err := readLifecycle(o, &q); err != nil {
		return q, err
	}
	o.raw("secure") // access is by token whatever it says
	for _, f := range []struct{ name, remedy, why string }{
		{"volumeMounts", "put the data into the template, or copy it in", "there are no volumes here"},
		{"mcp", "start a server in the sandbox", "no MCP gateway is started in a sandbox"},
		{"iam", "give the sandbox what it needs by envVars", "sandboxes get no workload identity here"},
	} {
		if err := o.refuse(f.name, f.remedy, f.why); err != nil {
			return q, err
		}
	}
	return q, o.end()
}

func readLifecycle(o *object, q *newSandbox) error {
	pauses, err := o.bool("autoPause")
	if err != nil {
		return err
	}
	q.pauses = pauses != nil && *pauses
	memory, err := o.bool("autoPauseMemory")
	if err != nil {
		return err
	}
	if memory != nil && !*memory {
		return keepsMemory("autoPauseMemory")
	}
	resume, err := o.object("autoResume")
	if err != nil || resume == nil {
		return err
	}
	enabled, err := resume.bool("enabled")
	if err != nil {
		return err
	}
	if q.autoResume = enabled != nil && *enabled; q.autoResume && !q.pauses {
		return errdefs.Userf(errdefs.InvalidArgument, "field autoResume", "send autoPause too", "a sandbox that is not paused at its time-out cannot be resumed")
	}
	return resume.end()
}

// keepsMemory refuses what would lose the processes of a paused sandbox.
func keepsMemory(field string) error {
	return errdefs.Userf(errdefs.Unsupported, "field "+field, "leave it out", "a paused sandbox keeps its memory and processes here; there is no pause that keeps the files alone")
}

// request makes a session's creation of q.
func (f *Facade) request(q newSandbox, t *Resolved) (control.CreateRequest, error) {
	s := spec.Resolve(t.Template.Spec, overrides(t.Template))
	var err error
	standard := s.Network
	if t.Template.Spec.Network.EgressPolicy == "" {
		standard = f.cfg.Network
	}
	if s.Network, err = q.network.policy(standard); err != nil {
		return control.CreateRequest{}, err
	}
	if _, err := spec.Check(&s, f.cfg.Runtimes...); err != nil {
		return control.CreateRequest{}, err
	}
	if !t.Template.HostView {
		s.FS.WritableDirs = nil // all of the root is, with what the template has there
	}
	if s.Hostname == "" {
		s.Hostname = "localhost" // a name that resolves, without which sudo complains at each use
	}
	// A sandbox ends by its time-out and by nothing else.
	s.Session.MaxIdleSeconds, s.Session.MaxRuntimeSeconds = 0, 0
	req := control.CreateRequest{
		Count: 1, Template: t.Template.Ref(), Spec: s, Secrets: q.env, Lifetime: q.timeout,
		Labels: map[string]string{labelSandbox: "1", labelTemplate: t.ID},
	}
	if t.Alias != "" {
		req.Labels[labelAlias] = t.Alias
	}
	if t.Built && t.Template.User != "" {
		req.Labels[labelUser] = t.Template.User
	}
	if t.Built && t.Template.Cwd != "" {
		req.Labels[labelWorkdir] = t.Template.Cwd
	}
	if q.network.public {
		req.Labels[labelPublic] = "1"
	}
	if q.autoResume {
		req.Labels[labelAutoResume] = "1"
	}
	if q.pauses {
		req.AtDeadline = "suspend"
	}
	req.Labels = withMetadata(req.Labels, q.metadata)
	return req, nil
}

// overrides is what sandboxes have that other sessions ask for. The view of the host's own
// files that base is cannot be written to.
func overrides(t *template.Template) spec.Sandbox {
	if t.HostView {
		return spec.Sandbox{NewPrivileges: true}
	}
	no := false
	return spec.Sandbox{FS: spec.FS{RootFS: spec.RootFS{ReadOnly: &no}}, NewPrivileges: true}
}

func checkMetadata(m map[string]string) error {
	total := 0
	for k, v := range m {
		if k == "" || len(k) > 256 {
			return errdefs.Userf(errdefs.InvalidArgument, "field metadata", "use names of 1 to 256 bytes", "%q is no name", Clip(k))
		}
		total += len(k) + len(v)
	}
	if len(m) > 64 || total > 32<<10 {
		return errdefs.Userf(errdefs.InvalidArgument, "field metadata", "give at most 64 entries of 32 KiB together", "has %d entries, %d bytes", len(m), total)
	}
	return nil
}

// checkEnv never says a value: it may be a secret.
func checkEnv(env map[string]string) error {
	total := 0
	for k, v := range env {
		if k == "" || len(k) > 256 || strings.ContainsAny(k, "=\x00") {
			return errdefs.Userf(errdefs.InvalidArgument, "field envVars", "use 1 to 256 bytes without '=' and NUL", "%q is not a variable's name", Clip(k))
		}
		if strings.IndexByte(v, 0) >= 0 {
			return errdefs.Userf(errdefs.InvalidArgument, fmt.Sprintf("field envVars[%q]", k), "put binary data into a file", "holds a NUL byte")
		}
		total += len(k) + len(v) + 2
	}
	if len(env) > 1024 || total > 256<<10 {
		return errdefs.Userf(errdefs.InvalidArgument, "field envVars", "give at most 1024 variables of 256 KiB together", "has %d variables, %d bytes", len(env), total)
	}
	return nil
}
