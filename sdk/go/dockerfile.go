package dsec

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// DockerfileOptions of a build.
type DockerfileOptions struct {
	Dockerfile []byte
	// Files is a tar, plain or compressed, of what COPY takes; nil for none.
	Files io.Reader
	// Args are build arguments.
	Args map[string]string
	// Ready is a shell command that ends with 0 when the start command (ENTRYPOINT and CMD) is up.
	Ready string
	// Fresh runs steps again though their results are kept.
	Fresh bool
}

// BuildDockerfile makes a template by a Dockerfile of the common subset, whose RUN runs in boxes of the
// server. progress may be nil. The end of ctx cancels it.
func (c *Client) BuildDockerfile(ctx context.Context, name string, o DockerfileOptions, progress func(*Progress)) (*Template, error) {
	v := url.Values{}
	for k, value := range o.Args {
		v.Add("arg", k+"="+value)
	}
	slices.Sort(v["arg"])
	if o.Fresh {
		v.Set("fresh", "true")
	}
	if o.Ready != "" {
		v.Set("ready", o.Ready)
	}
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { w.CloseWithError(writeForm(form, &o)) }()
	defer r.Close() // ends the writer
	req, err := c.request(ctx, http.MethodPost, "/v1/templates/"+url.PathEscape(name)+"/build", v, r)
	if err != nil {
		return nil, err
	}
	req.Header = req.Header.Clone()
	req.Header.Set("Content-Type", form.FormDataContentType())
	body, err := c.get(req)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	lines := bufio.NewReader(body)
	return made(progress, func() (*Progress, *Template, error) { return nextLine(lines) })
}

func writeForm(form *multipart.Writer, o *DockerfileOptions) error {
	part, err := form.CreateFormFile("dockerfile", "Dockerfile")
	if err == nil {
		_, err = part.Write(o.Dockerfile)
	}
	if err == nil && o.Files != nil {
		if part, err = form.CreateFormFile("files", "files.tar"); err == nil {
			_, err = io.Copy(part, o.Files)
		}
	}
	return errors.Join(err, form.Close())
}

func nextLine(r *bufio.Reader) (*Progress, *Template, error) {
	text, err := r.ReadBytes('\n')
	if err != nil {
		return nil, nil, err
	}
	var line struct{ Progress, Template, Error json.RawMessage }
	if err := json.Unmarshal(text, &line); err != nil {
		return nil, nil, err
	}
	read := protojson.UnmarshalOptions{DiscardUnknown: true}
	switch {
	case line.Error != nil:
		e := &dsecv1.Error{}
		if err := read.Unmarshal(line.Error, e); err != nil {
			return nil, nil, err
		}
		return nil, nil, FromWire(e)
	case line.Template != nil:
		t := &Template{}
		return nil, t, read.Unmarshal(line.Template, t)
	}
	p := &Progress{}
	return p, nil, read.Unmarshal(line.Progress, p)
}
