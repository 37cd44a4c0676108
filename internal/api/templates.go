package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/specwire"
	"github.com/dsec-platform/dsec/internal/template"
)

// templates serves TemplateService.
type templates struct{ *API }

func (t *templates) ListTemplates(ctx context.Context, _ *dsecv1.ListTemplatesRequest) (*dsecv1.ListTemplatesResponse, error) {
	all, err := t.cfg.Templates.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &dsecv1.ListTemplatesResponse{}
	for _, one := range all {
		if !t.hidden(ctx, one.Name) {
			out.Templates = append(out.Templates, t.owned(ctx, one))
		}
	}
	return out, nil
}

func (t *templates) hidden(ctx context.Context, name string) bool {
	c := callerOf(ctx)
	return t.cfg.Hidden != nil && t.cfg.Hidden(c.project, c.operator, name)
}

func (t *templates) GetTemplate(ctx context.Context, q *dsecv1.GetTemplateRequest) (*dsecv1.GetTemplateResponse, error) {
	if err := checkText("template", q.GetTemplate(), 256); err != nil {
		return nil, err
	}
	one, err := t.cfg.Templates.Get(ctx, templateName(q.GetTemplate()))
	if err != nil {
		return nil, err
	}
	if t.hidden(ctx, one.Name) {
		return nil, errdefs.Userf(errdefs.NotFound, "template "+clip(q.GetTemplate()), "`dsec template ls` lists those there are", "there is no such template")
	}
	return &dsecv1.GetTemplateResponse{Template: t.owned(ctx, one)}, nil
}

// owned is a template of the wire with whose it is.
func (t *templates) owned(ctx context.Context, one *template.Template) *dsecv1.Template {
	w, c := wireTemplate(one), callerOf(ctx)
	if t.cfg.Owner != nil {
		w.Project, w.Alias = t.cfg.Owner(c.project, c.operator, one.Name)
	}
	return w
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

func (t *templates) VerifyTemplate(ctx context.Context, q *dsecv1.VerifyTemplateRequest) (*dsecv1.VerifyTemplateResponse, error) {
	if err := operatorOnly(ctx, "verifying a template"); err != nil { // it reads all of it from the disk
		return nil, err
	}
	if err := checkText("template", q.GetTemplate(), 256); err != nil {
		return nil, err
	}
	if t.cfg.Importer == nil {
		return nil, t.noImporter(q.GetTemplate())
	}
	one, err := t.cfg.Templates.Get(ctx, templateName(q.GetTemplate()))
	if err != nil {
		return nil, err
	}
	if err := t.cfg.Importer.Verify(ctx, one.Ref()); err != nil {
		return nil, err
	}
	return &dsecv1.VerifyTemplateResponse{Template: wireTemplate(one)}, nil
}

func (t *templates) ImportTemplate(ctx context.Context, q *dsecv1.ImportTemplateRequest, out dsecv1connect.TemplateServiceImportTemplateServerStream) error {
	if err := t.mayMake(ctx, q.GetName(), q.GetInit()); err != nil {
		return err
	}
	src := template.Source{Kind: template.Registry, Ref: q.GetImage()}
	switch path := q.GetPath(); {
	case (q.GetImage() == "") == (path == ""):
		return bad("source", "give image or path", "names no source")
	case path == "":
	case !callerOf(ctx).root:
		return errdefs.Policyf(errdefs.Forbidden, "field path", "upload a tar by PUT /v1/templates/"+clip(q.GetName()), "only the machine's root, on the unix socket, may name paths of the server")
	case path[0] != '/':
		return bad("path", "give an absolute path", "%q is relative", clip(path))
	default:
		var err error
		if src, err = template.ParseSource(path); err != nil {
			return err
		}
	}
	src.Platform, src.Insecure = q.GetPlatform(), q.GetInsecure()
	made, err := t.cfg.Importer.Import(ctx, template.ImportRequest{
		Name: q.GetName(), Source: src, Init: q.GetInit(), Env: q.GetEnv(), Cwd: q.GetCwd(), User: q.GetUser(), Spec: specwire.From(q.GetSpec()), Fresh: q.GetFresh(),
		// A client that is gone ends ctx, so that a failed Send needs no answer.
		Progress: func(p template.Progress) { out.Send(&dsecv1.ImportTemplateResponse{Progress: wireProgress(p)}) },
	})
	if err != nil {
		return err
	}
	return out.Send(&dsecv1.ImportTemplateResponse{Template: wireTemplate(made)})
}

func (t *templates) BuildTemplate(ctx context.Context, q *dsecv1.BuildTemplateRequest, out dsecv1connect.TemplateServiceBuildTemplateServerStream) error {
	if err := t.mayMake(ctx, q.GetName(), q.GetInit()); err != nil {
		return err
	}
	if q.GetDebian() == "" {
		return bad("debian", "name a release, such as bookworm", "is missing")
	}
	made, err := t.cfg.Importer.Import(ctx, template.ImportRequest{
		Name:   q.GetName(),
		Source: template.Source{Kind: template.Debian, Ref: q.GetDebian(), Packages: q.GetPackages(), Variant: q.GetVariant(), Mirrors: q.GetMirrors()},
		Init:   q.GetInit(), Env: q.GetEnv(), Cwd: q.GetCwd(), User: q.GetUser(), Spec: specwire.From(q.GetSpec()), Fresh: q.GetFresh(),
		Progress: func(p template.Progress) { out.Send(&dsecv1.BuildTemplateResponse{Progress: wireProgress(p)}) },
	})
	if err != nil {
		return err
	}
	return out.Send(&dsecv1.BuildTemplateResponse{Template: wireTemplate(made)})
}

// putTemplate imports an uploaded tar: an image or a root file system. It is kept
// on disk while it is read, because an image's index may stand at its end.
func (a *API) putTemplate(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "platform", "init"); err != nil {
		return err
	}
	name, q := r.PathValue("name"), r.URL.Query()
	if err := a.mayMake(r.Context(), name, q["init"]); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(a.cfg.SpoolDir, "dsec-upload-")
	if err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "upload", "cannot make a place for it: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "upload.tar")
	if err := spool(path, r.Body); err != nil {
		return err
	}
	src, err := template.ParseSource(path)
	if err != nil {
		return err
	}
	src.Platform = q.Get("platform")
	made, err := a.cfg.Importer.Import(r.Context(), template.ImportRequest{Name: name, Source: src, Init: q["init"]})
	if err != nil {
		return err
	}
	return writeJSON(w, &dsecv1.GetTemplateResponse{Template: wireTemplate(made)})
}

func spool(path string, src io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "upload", "cannot be kept: %w", err)
	}
	_, err = pump(f, src)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, syscall.ENOSPC) {
		return errdefs.Limitf(errdefs.DiskFull, "upload", "free space in the data directory", "does not fit on the server's disk")
	}
	return err
}

func (a *API) noImporter(name string) error {
	return errdefs.Userf(errdefs.Unsupported, "template "+clip(name), "use the command line on the server's machine", "this server makes no templates")
}

func (a *API) mayMake(ctx context.Context, name string, init []string) error {
	if err := operatorOnly(ctx, "making a template"); err != nil {
		return err
	}
	if a.cfg.Importer == nil {
		return a.noImporter(name)
	}
	for _, cmd := range init {
		if cmd == "" || len(cmd) > 64<<10 || strings.IndexByte(cmd, 0) >= 0 {
			return bad("init", "give shell commands of up to 64 KiB", "holds one that is empty, too long or binary")
		}
	}
	return nil
}

func wireProgress(p template.Progress) *dsecv1.Progress {
	return &dsecv1.Progress{Stage: utf8Text(p.Stage), Message: utf8Text(p.Message), Done: p.Done, Total: p.Total}
}

func wireTemplate(t *template.Template) *dsecv1.Template {
	w := &dsecv1.Template{
		Name: t.Name, Version: t.Version, Digest: t.Digest, Created: wireTime(t.Created), Source: utf8Text(t.Source), Size: t.Size,
		Env: t.Env, Cwd: t.Cwd, User: t.User, Spec: specwire.To(&t.Spec), HostView: t.HostView, InUse: int32(t.InUse), Newest: t.Newest,
	}
	for _, l := range t.Layers {
		w.Layers = append(w.Layers, &dsecv1.Layer{Digest: l.Digest, Size: l.Size, Format: l.Format, Note: utf8Text(l.Note)})
	}
	return w
}
