package api

import (
	"context"
	"io"
	"net/http"
	"strings"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// TemplateMaker makes templates. progress is called from one goroutine at a
// time and never after the method returned. The end of ctx leaves nothing behind.
type TemplateMaker interface {
	Import(ctx context.Context, req TemplateImport, progress func(TemplateProgress)) (*template.Template, error)
	Build(ctx context.Context, req TemplateBuild, progress func(TemplateProgress)) (*template.Template, error)
}

// TemplateImport names exactly one of Image, Path and Tar.
type TemplateImport struct {
	Name     string
	Image    string    // registry reference
	Path     string    // on this machine: OCI layout, docker save tar, root file system
	Tar      io.Reader // docker save or root file system
	Platform string
	Init     []string
	Spec     spec.Sandbox
}

// TemplateBuild makes a template from a distribution's packages.
type TemplateBuild struct {
	Name, Debian string
	Packages     []string
	Init         []string
	Spec         spec.Sandbox
}

// TemplateProgress is one step of making a template.
type TemplateProgress struct {
	Step        string
	Done, Total int64
}

// templates serves TemplateService.
type templates struct{ *API }

func (t *templates) ListTemplates(ctx context.Context, _ *dsecv1.ListTemplatesRequest) (*dsecv1.ListTemplatesResponse, error) {
	all, err := t.cfg.Templates.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &dsecv1.ListTemplatesResponse{Templates: make([]*dsecv1.Template, len(all))}
	for i, one := range all {
		out.Templates[i] = wireTemplate(one)
	}
	return out, nil
}

func (t *templates) GetTemplate(ctx context.Context, q *dsecv1.GetTemplateRequest) (*dsecv1.GetTemplateResponse, error) {
	if err := checkText("template", q.GetTemplate(), 256); err != nil {
		return nil, err
	}
	one, err := t.cfg.Templates.Get(ctx, templateName(q.GetTemplate()))
	if err != nil {
		return nil, err
	}
	return &dsecv1.GetTemplateResponse{Template: wireTemplate(one)}, nil
}

func (t *templates) RemoveTemplate(ctx context.Context, q *dsecv1.RemoveTemplateRequest) (*dsecv1.RemoveTemplateResponse, error) {
	if err := operatorOnly(ctx, "removing a template"); err != nil {
		return nil, err
	}
	if q.GetTemplate() == "" {
		return nil, bad("template", "give name or name@version", "is missing")
	}
	if err := checkText("template", q.GetTemplate(), 256); err != nil {
		return nil, err
	}
	return &dsecv1.RemoveTemplateResponse{}, t.cfg.Templates.Remove(ctx, q.GetTemplate())
}

func (t *templates) ImportTemplate(ctx context.Context, q *dsecv1.ImportTemplateRequest, out dsecv1connect.TemplateServiceImportTemplateServerStream) error {
	req := TemplateImport{Name: q.GetName(), Image: q.GetImage(), Path: q.GetPath(), Platform: q.GetPlatform(), Init: q.GetInit(), Spec: domainSpec(q.GetSpec())}
	switch {
	case (req.Image == "") == (req.Path == ""):
		return bad("source", "give image or path", "names no source")
	case req.Path != "" && !callerOf(ctx).root:
		return errdefs.Policyf(errdefs.Forbidden, "field path", "upload a tar by PUT /v1/templates/"+clip(req.Name), "only the machine's root, on the unix socket, may name paths of the server")
	case req.Path != "" && req.Path[0] != '/':
		return bad("path", "give an absolute path", "%q is relative", clip(req.Path))
	}
	if err := t.mayMake(ctx, req.Name, req.Init); err != nil {
		return err
	}
	made, err := t.cfg.Maker.Import(ctx, req, func(p TemplateProgress) {
		out.Send(&dsecv1.ImportTemplateResponse{Progress: wireProgress(p)}) // a client that is gone ends ctx
	})
	if err != nil {
		return err
	}
	return out.Send(&dsecv1.ImportTemplateResponse{Template: wireTemplate(made)})
}

func (t *templates) BuildTemplate(ctx context.Context, q *dsecv1.BuildTemplateRequest, out dsecv1connect.TemplateServiceBuildTemplateServerStream) error {
	req := TemplateBuild{Name: q.GetName(), Debian: q.GetDebian(), Packages: q.GetPackages(), Init: q.GetInit(), Spec: domainSpec(q.GetSpec())}
	if err := t.mayMake(ctx, req.Name, req.Init); err != nil {
		return err
	}
	if req.Debian == "" {
		return bad("debian", "name a release, such as bookworm", "is missing")
	}
	for _, word := range append([]string{req.Debian}, req.Packages...) {
		if word == "" || word[0] == '-' || strings.ContainsFunc(word, func(r rune) bool { return r > 127 || !isWord(byte(r)) && !strings.ContainsRune(".+:~=", r) }) {
			return bad("packages", "use names such as python3 or git=1:2.39", "%q is not a name of a release or package", clip(word))
		}
	}
	made, err := t.cfg.Maker.Build(ctx, req, func(p TemplateProgress) {
		out.Send(&dsecv1.BuildTemplateResponse{Progress: wireProgress(p)})
	})
	if err != nil {
		return err
	}
	return out.Send(&dsecv1.BuildTemplateResponse{Template: wireTemplate(made)})
}

// putTemplate imports an uploaded tar.
func (a *API) putTemplate(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "platform", "init"); err != nil {
		return err
	}
	req := TemplateImport{Name: r.PathValue("name"), Tar: r.Body, Platform: r.URL.Query().Get("platform"), Init: r.URL.Query()["init"]}
	if err := a.mayMake(r.Context(), req.Name, req.Init); err != nil {
		return err
	}
	made, err := a.cfg.Maker.Import(r.Context(), req, func(TemplateProgress) {})
	if err != nil {
		return err
	}
	return writeJSON(w, &dsecv1.GetTemplateResponse{Template: wireTemplate(made)})
}

func (a *API) mayMake(ctx context.Context, name string, init []string) error {
	if err := operatorOnly(ctx, "making a template"); err != nil {
		return err
	}
	if a.cfg.Maker == nil {
		return errdefs.Userf(errdefs.Unsupported, "template "+clip(name), "use the command line on the server's machine", "this server makes no templates")
	}
	ok := name != "" && len(name) <= 128
	for i := 0; i < len(name) && ok; i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && (c == '-' || c == '_' || c == '.' || c == '/')
	}
	if !ok {
		return bad("name", "use 1 to 128 characters [a-z0-9._/-], a letter or digit first", "%q is not a template's name", clip(name))
	}
	for _, cmd := range init {
		if cmd == "" || len(cmd) > 64<<10 || strings.IndexByte(cmd, 0) >= 0 {
			return bad("init", "give shell commands of up to 64 KiB", "holds one that is empty, too long or binary")
		}
	}
	return nil
}

func wireProgress(p TemplateProgress) *dsecv1.Progress {
	return &dsecv1.Progress{Step: utf8Text(p.Step), Done: p.Done, Total: p.Total}
}

func wireTemplate(t *template.Template) *dsecv1.Template {
	w := &dsecv1.Template{
		Name: t.Name, Version: t.Version, Digest: t.Digest, Created: wireTime(t.Created), Source: utf8Text(t.Source), Size: t.Size,
		Env: t.Env, Cwd: t.Cwd, User: t.User, Spec: wireSpec(&t.Spec), HostView: t.HostView, InUse: int32(t.InUse),
	}
	for _, l := range t.Layers {
		w.Layers = append(w.Layers, &dsecv1.Layer{Digest: l.Digest, Size: l.Size, Format: l.Format, Note: utf8Text(l.Note)})
	}
	return w
}
