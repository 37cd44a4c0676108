package tmpl

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template"
	"github.com/dsec-platform/dsec/internal/template/dockerfile"
)

// Where an SDK's steps begin upon an image.
const home = "/home/" + e2b.DefaultUser

// startBody is a recipe on the wire.
type startBody struct {
	FromImage    string     `json:"fromImage"`
	FromTemplate string     `json:"fromTemplate"`
	Registry     *registry  `json:"fromImageRegistry"`
	Force        bool       `json:"force"`
	Steps        []stepBody `json:"steps"`
	StartCmd     string     `json:"startCmd"`
	ReadyCmd     string     `json:"readyCmd"`
}

type stepBody struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"`
	Force     *bool    `json:"force"`
	// What the client has acted upon: it has uploaded the files again, uncompressed, or what symlinks lead to.
	ForceUpload     *bool `json:"forceUpload"`
	GZip            *bool `json:"gzip"`
	ResolveSymlinks *bool `json:"resolveSymlinks"`
}

// registry is an account at one; its fields are those of three kinds.
type registry struct {
	Type           string `json:"type"`
	Username       string `json:"username"`
	Password       string `json:"password"`
	ServiceAccount string `json:"serviceAccountJson"`
	AWSKey         string `json:"awsAccessKeyId"`
	AWSSecret      string `json:"awsSecretAccessKey"`
	AWSRegion      string `json:"awsRegion"`
}

func (g *registry) login() (*template.Login, error) {
	switch {
	case g == nil:
		return nil, nil
	case g.Type == "registry":
		return &template.Login{User: g.Username, Password: g.Password}, nil
	case g.Type == "gcp":
		return &template.Login{User: "_json_key", Password: g.ServiceAccount}, nil
	case g.Type == "aws":
		return nil, errdefs.Userf(errdefs.Unsupported, "registry aws", "give username AWS and the output of `aws ecr get-login-password` as password of a plain registry", "this server does not ask AWS for a password")
	}
	return nil, errdefs.Userf(errdefs.InvalidArgument, "registry "+g.Type, "use registry or gcp", "there is no such kind of registry")
}

func (h *Handler) startSteps(w http.ResponseWriter, r *http.Request) error {
	var q startBody
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1)) // read refuses what is longer
	if err != nil {
		return errdefs.Userf(errdefs.InvalidArgument, "request", "send it again", "cannot be read: %w", err)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if err := read(r, &q); err != nil {
		return err
	}
	c := caller(r)
	login, err := q.Registry.login()
	if err != nil {
		return err
	}
	recipe := build.Recipe{Image: q.FromImage, Login: login, Template: q.FromTemplate, Fresh: q.Force, Privileged: c.Operator,
		Start: template.StartCommand{Command: q.StartCmd, Ready: q.ReadyCmd}, Asked: body}
	if q.FromImage != "" {
		recipe.User, recipe.Cwd = e2b.DefaultUser, home
	}
	for i := range q.Steps {
		s, err := h.step(c.Project, i+1, &q.Steps[i])
		if err != nil {
			return err
		}
		recipe.Steps = append(recipe.Steps, s)
	}
	if err := h.builds.Start(r.Context(), c.Project, r.PathValue("id"), r.PathValue("build"), recipe); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// step reads one instruction of an SDK. Words are expanded as in a Dockerfile.
func (h *Handler) step(project string, n int, q *stepBody) (template.Step, error) {
	kind := strings.ToUpper(q.Type)
	s := template.Step{Kind: template.StepKind(kind), Force: q.Force != nil && *q.Force}
	object := fmt.Sprintf("step %d", n)
	bad := func(remedy, format string, args ...any) (template.Step, error) {
		return s, errdefs.Userf(errdefs.InvalidArgument, object, remedy, format, args...)
	}
	for _, a := range q.Args {
		if strings.ContainsRune(a, 0) {
			return bad("send text", "an argument has a NUL byte")
		}
	}
	count := func(least, most int) bool { return len(q.Args) >= least && len(q.Args) <= most }
	switch s.Kind {
	case template.StepRun:
		if !count(1, 2) || strings.TrimSpace(q.Args[0]) == "" {
			return bad("give a command and perhaps a user", "RUN has %d arguments", len(q.Args))
		}
		s.Script, s.Login = q.Args[0], true
		if len(q.Args) == 2 {
			s.User = q.Args[1]
		}
	case template.StepCopy, "ADD":
		if !count(2, 4) || q.FilesHash == "" {
			return bad("give source, destination, user, mode, and filesHash", "COPY has %d arguments", len(q.Args))
		}
		files, err := h.builds.Files(project, q.FilesHash)
		if err != nil {
			return s, err
		}
		args := append(append([]string{}, q.Args...), "", "")
		s.Kind = template.StepCopy
		s.Copy = &template.CopyStep{Files: files, Sources: []string{args[0]}, Dest: args[1], Owner: args[2], Mode: args[3]}
	case template.StepEnv:
		if len(q.Args) == 0 || len(q.Args)%2 != 0 {
			return bad("give names and values in turn", "ENV has %d arguments", len(q.Args))
		}
		for i := 0; i < len(q.Args); i += 2 {
			s.Env = append(s.Env, q.Args[i]+"="+envWord(q.Args[i+1]))
		}
	case template.StepWorkdir, template.StepUser:
		if !count(1, 1) || q.Args[0] == "" {
			return bad("give one", "%s has %d arguments", kind, len(q.Args))
		}
		s.Dir, s.User = q.Args[0], q.Args[0]
	default:
		return bad("use RUN, COPY, ENV, WORKDIR or USER", "there is no instruction %.40q", q.Type)
	}
	shown := q.Args
	switch s.Kind {
	case template.StepCopy:
		shown = q.Args[:2]
	case template.StepEnv: // names alone: a value may be a secret
		shown = names(q.Args)
	}
	s.Label = object + ": " + kind + " " + strings.Join(shown, " ")
	return s, nil
}

// names are those of an ENV, whose arguments are names and values in turn.
func names(args []string) (out []string) {
	for i := 0; i < len(args); i += 2 {
		out = append(out, args[i])
	}
	return out
}

// startDockerfile starts a build whose Dockerfile came with its request.
func (h *Handler) startDockerfile(w http.ResponseWriter, r *http.Request) error {
	c, id := caller(r), r.PathValue("build")
	b, err := h.builds.Build(c.Project, r.PathValue("id"), id)
	if err != nil {
		return err
	}
	if b.Request.Dockerfile == "" {
		return errdefs.Userf(errdefs.InvalidArgument, "build "+id, "start it by POST /v2/templates/{id}/builds/{build}", "its request had no Dockerfile")
	}
	plan, err := dockerfile.Parse([]byte(b.Request.Dockerfile), dockerfile.Options{Files: noFiles})
	if err != nil {
		return err
	}
	start := plan.Start
	if b.Request.Start+b.Request.Ready != "" {
		start = template.StartCommand{Command: b.Request.Start, Ready: b.Request.Ready}
	}
	recipe := build.Recipe{Image: plan.From, Platform: plan.Platform, Steps: plan.Steps, Start: start, Notes: plan.Notes, Privileged: c.Operator, Asked: []byte("dockerfile")}
	if err := h.builds.Start(r.Context(), c.Project, b.Template, id, recipe); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// noFiles is what a build has that uploaded none.
var noFiles = template.FileArchive{Digest: "none", Open: func() (io.ReadCloser, error) {
	return nil, errdefs.Userf(errdefs.Unsupported, "files", "build by steps, whose files are uploaded one by one", "this form of a build has none to copy")
}}
