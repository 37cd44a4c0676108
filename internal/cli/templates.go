package cli

import (
	"context"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// Templates is a template store: a server's, or the data directory's own where
// no server runs. Messages are the wire's in both cases.
type Templates interface {
	List(ctx context.Context) ([]*dsecv1.Template, error)
	Get(ctx context.Context, ref string) (*dsecv1.Template, error)
	Remove(ctx context.Context, ref string) error
	// Verify reads all layers again and gives the version when they are what they were.
	Verify(ctx context.Context, ref string) (*dsecv1.Template, error)
	// Import and Build tell their progress; the end of ctx cancels and leaves nothing.
	Import(ctx context.Context, r *dsecv1.ImportTemplateRequest, progress func(*dsecv1.Progress)) (*dsecv1.Template, error)
	Build(ctx context.Context, r *dsecv1.BuildTemplateRequest, progress func(*dsecv1.Progress)) (*dsecv1.Template, error)
	BuildDockerfile(ctx context.Context, name string, o dsec.DockerfileOptions, progress func(*dsecv1.Progress)) (*dsecv1.Template, error)
}

// templates gives the server's store, or the data directory's when no server answers.
func (e *Env) templates(ctx context.Context) (Templates, error) {
	if e.hooks.Templates != nil && !e.ServerAnswers(ctx) {
		c, done, err := e.hooks.Templates(e.absDataDir())
		if err != nil {
			return nil, err
		}
		e.done = append(e.done, done)
		return remoteTemplates{c}, nil
	}
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	return remoteTemplates{c}, nil
}

type remoteTemplates struct{ c *dsec.Client }

func (t remoteTemplates) List(ctx context.Context) ([]*dsecv1.Template, error) {
	r, err := t.c.Templates.ListTemplates(ctx, &dsecv1.ListTemplatesRequest{})
	return r.GetTemplates(), dsec.AsError(err)
}

func (t remoteTemplates) Get(ctx context.Context, ref string) (*dsecv1.Template, error) {
	r, err := t.c.Templates.GetTemplate(ctx, &dsecv1.GetTemplateRequest{Template: ref})
	return r.GetTemplate(), dsec.AsError(err)
}

func (t remoteTemplates) Remove(ctx context.Context, ref string) error {
	_, err := t.c.Templates.RemoveTemplate(ctx, &dsecv1.RemoveTemplateRequest{Template: ref})
	return dsec.AsError(err)
}

func (t remoteTemplates) Verify(ctx context.Context, ref string) (*dsecv1.Template, error) {
	r, err := t.c.Templates.VerifyTemplate(ctx, &dsecv1.VerifyTemplateRequest{Template: ref})
	return r.GetTemplate(), dsec.AsError(err)
}

func (t remoteTemplates) Import(ctx context.Context, r *dsecv1.ImportTemplateRequest, progress func(*dsecv1.Progress)) (*dsecv1.Template, error) {
	return t.c.ImportTemplate(ctx, r, progress)
}

func (t remoteTemplates) Build(ctx context.Context, r *dsecv1.BuildTemplateRequest, progress func(*dsecv1.Progress)) (*dsecv1.Template, error) {
	return t.c.BuildTemplate(ctx, r, progress)
}

func (t remoteTemplates) BuildDockerfile(ctx context.Context, name string, o dsec.DockerfileOptions, progress func(*dsecv1.Progress)) (*dsecv1.Template, error) {
	return t.c.BuildDockerfile(ctx, name, o, progress)
}
