package dsec

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protojson"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// Progress is one step of making a template.
type Progress = dsecv1.Progress

// ImportTemplate makes a template from an image or, on the server's own socket,
// from a path. progress may be nil. The end of ctx cancels it.
func (c *Client) ImportTemplate(ctx context.Context, req *dsecv1.ImportTemplateRequest, progress func(*Progress)) (*Template, error) {
	st, err := c.Templates.ImportTemplate(ctx, req)
	if err != nil {
		return nil, AsError(err)
	}
	defer st.Close()
	return made(progress, func() (*Progress, *Template, error) {
		r, err := st.Receive()
		return r.GetProgress(), r.GetTemplate(), err
	})
}

// BuildTemplate makes a template from a distribution's packages.
func (c *Client) BuildTemplate(ctx context.Context, req *dsecv1.BuildTemplateRequest, progress func(*Progress)) (*Template, error) {
	st, err := c.Templates.BuildTemplate(ctx, req)
	if err != nil {
		return nil, AsError(err)
	}
	defer st.Close()
	return made(progress, func() (*Progress, *Template, error) {
		r, err := st.Receive()
		return r.GetProgress(), r.GetTemplate(), err
	})
}

func made(progress func(*Progress), next func() (*Progress, *Template, error)) (*Template, error) {
	var t *Template
	for {
		p, got, err := next()
		switch {
		case errors.Is(err, io.EOF) && t != nil:
			return t, nil
		case errors.Is(err, io.EOF):
			return nil, errEnded
		case err != nil:
			return nil, AsError(err)
		}
		if got != nil {
			t = got
		}
		if p != nil && progress != nil {
			progress(p)
		}
	}
}

// UploadTemplate makes a template from a tar: of "docker save", of an OCI layout,
// or of a root file system. init are commands run once in it, as root.
func (c *Client) UploadTemplate(ctx context.Context, name string, tar io.Reader, init ...string) (*Template, error) {
	req, err := c.request(ctx, http.MethodPut, "/v1/templates/"+url.PathEscape(name), url.Values{"init": init}, io.NopCloser(tar))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, AsError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, responseError(resp)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return nil, AsError(err)
	}
	var r dsecv1.GetTemplateResponse
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &r); err != nil {
		return nil, AsError(err)
	}
	return r.GetTemplate(), nil
}
