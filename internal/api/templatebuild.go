package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template"
	"github.com/dsec-platform/dsec/internal/template/dockerfile"
)

// buildTemplate builds by a Dockerfile: the parts "dockerfile" and "files", a tar, of a form. It
// answers with one JSON object a line: progress, then the template or an error.
func (a *API) buildTemplate(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "arg", "fresh", "ready"); err != nil {
		return err
	}
	name, q := r.PathValue("name"), r.URL.Query()
	if err := a.mayMake(r.Context(), name, nil); err != nil {
		return err
	}
	fresh, err := queryBool("fresh", q.Get("fresh"))
	if err != nil {
		return err
	}
	args := map[string]string{}
	for _, kv := range q["arg"] {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return bad("arg", "write NAME=value", "%q is no build argument", clip(kv))
		}
		args[k] = v
	}
	dir, err := os.MkdirTemp(a.cfg.SpoolDir, "dsec-build-")
	if err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "upload", "cannot make a place for it: %w", err)
	}
	defer os.RemoveAll(dir)
	text, files, err := buildForm(r, filepath.Join(dir, "files.tar"))
	if err != nil {
		return err
	}
	plan, err := dockerfile.Parse(text, dockerfile.Options{Args: args, Files: files})
	if err != nil {
		return err
	}
	plan.Start.Ready = q.Get("ready")
	req := template.ImportRequest{Name: name, Steps: plan.Steps, Start: plan.Start, Fresh: fresh, Source: a.baseOf(r.Context(), plan)}
	return a.streamBuild(w, r, plan.Notes, req)
}

// baseOf is a template of the node, if there is one of that name, else an image.
func (a *API) baseOf(ctx context.Context, p *dockerfile.Plan) template.Source {
	if t, err := a.cfg.Templates.Get(ctx, p.From); err == nil {
		return template.Source{Kind: template.FromTemplate, Ref: t.Ref()}
	}
	return template.Source{Kind: template.Registry, Ref: p.From, Platform: p.Platform}
}

// buildForm reads the Dockerfile and keeps the files at path.
func buildForm(r *http.Request, path string) (text []byte, files template.FileArchive, err error) {
	form, err := r.MultipartReader()
	if err != nil {
		return nil, files, errdefs.Userf(errdefs.InvalidArgument, "request", "send a form with the parts dockerfile and files", "is no form: %w", err)
	}
	files = template.FileArchive{Digest: "none", Open: func() (io.ReadCloser, error) {
		return nil, errdefs.Userf(errdefs.NotFound, "files", "send them as the part files", "none were sent")
	}}
	for {
		p, err := form.NextPart()
		switch {
		case errors.Is(err, io.EOF) && text == nil:
			return nil, files, errdefs.Userf(errdefs.InvalidArgument, "request", "send a form with the parts dockerfile and files", "has no Dockerfile")
		case errors.Is(err, io.EOF):
			return text, files, nil
		case err != nil:
			return nil, files, err
		}
		if err := formPart(p, path, &text, &files); err != nil {
			return nil, files, err
		}
	}
}

func formPart(p *multipart.Part, path string, text *[]byte, files *template.FileArchive) (err error) {
	switch p.FormName() {
	case "dockerfile":
		*text, err = io.ReadAll(io.LimitReader(p, dockerfile.MaxSize+1))
		return err
	case "files":
		if err := spool(path, p); err != nil {
			return err
		}
		*files, err = template.ArchiveFile(path)
		return err
	}
	return bad(clip(p.FormName()), "send dockerfile and files", "is not a part of this form")
}

// streamBuild builds and tells of it line by line. What goes wrong is told in the last one.
func (a *API) streamBuild(w http.ResponseWriter, r *http.Request, notes []string, req template.ImportRequest) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	line := func(key string, m proto.Message) {
		b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err == nil {
			b, err = json.Marshal(map[string]json.RawMessage{key: b})
		}
		if err == nil {
			_, _ = w.Write(append(b, '\n')) // a client that has gone ends the request's context
			_ = flush.Flush()
		}
	}
	for _, n := range notes {
		line("progress", wireProgress(template.Progress{Stage: "Dockerfile", Message: n}))
	}
	req.Progress = func(p template.Progress) { line("progress", wireProgress(p)) }
	made, err := a.cfg.Importer.Import(r.Context(), req)
	if err != nil {
		line("error", wireError(told(r.Context(), a.typed(r.Context(), err))))
		return nil
	}
	line("template", wireTemplate(made))
	return nil
}
