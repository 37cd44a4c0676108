package dsec

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// ReadOptions of ReadFile. The zero value reads the whole file as the session's user.
type ReadOptions struct {
	User   string
	Offset int64
	Length int64 // 0: to the end
}

// WriteOptions of WriteFile. The zero value replaces the file as the session's user.
type WriteOptions struct {
	User    string
	Mode    uint32 // of a new file; 0: 0644
	Parents bool   // make missing directories
	Append  bool
}

// ReadFile streams a file out. The caller closes the reader; an error of Read
// means that the file is not whole.
func (s *Session) ReadFile(ctx context.Context, path string, o ReadOptions) (io.ReadCloser, error) {
	req, err := s.bytes(ctx, http.MethodGet, "files", url.Values{"path": {path}}, o.User, nil)
	if err != nil {
		return nil, err
	}
	if o.Offset > 0 || o.Length > 0 {
		end := ""
		if o.Length > 0 {
			end = strconv.FormatInt(o.Offset+o.Length-1, 10)
		}
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%s", o.Offset, end))
	}
	return s.c.get(req)
}

// WriteFile streams r into a file and returns when it is there whole; the old
// content stays until then. A lost connection is repeated when r is an
// io.ReaderAt and io.Seeker, such as an open file.
func (s *Session) WriteFile(ctx context.Context, path string, r io.Reader, o WriteOptions) (*FileInfo, error) {
	v := url.Values{"path": {path}, "op_id": {newOpID()}}
	if o.Mode != 0 {
		v.Set("mode", strconv.FormatUint(uint64(o.Mode), 8))
	}
	if o.Parents {
		v.Set("parents", "true")
	}
	if o.Append {
		v.Set("append", "true")
	}
	var w dsecv1.StatResponse
	if err := s.put(ctx, "files", v, o.User, r, &w); err != nil {
		return nil, err
	}
	return w.GetInfo(), nil
}

// Tar streams the tree below path out as a tar; names in it are relative to path.
func (s *Session) Tar(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := s.bytes(ctx, http.MethodGet, "tar", url.Values{"path": {path}}, "", nil)
	if err != nil {
		return nil, err
	}
	return s.c.get(req)
}

// Untar unpacks a tar (plain, gzip or zstd) below path, which is made if it is not there.
func (s *Session) Untar(ctx context.Context, path string, r io.Reader) error {
	return s.put(ctx, "tar", url.Values{"path": {path}, "op_id": {newOpID()}}, "", r, nil)
}

func (s *Session) bytes(ctx context.Context, method, kind string, v url.Values, user string, body io.Reader) (*http.Request, error) {
	if user != "" {
		v.Set("user", user)
	}
	return s.c.request(ctx, method, "/v1/sessions/"+url.PathEscape(s.id)+"/"+kind, v, body)
}

func (c *Client) request(ctx context.Context, method, path string, v url.Values, body io.Reader) (*http.Request, error) {
	u := c.base + path
	if len(v) > 0 {
		u += "?" + v.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, invalid("url "+u, "check DSEC_URL and the session's id", err.Error())
	}
	for k, vs := range c.header {
		req.Header[k] = vs
	}
	return req, nil
}

func (c *Client) get(req *http.Request) (io.ReadCloser, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, AsError(err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp.Body, nil
}

func (s *Session) put(ctx context.Context, kind string, v url.Values, user string, r io.Reader, into *dsecv1.StatResponse) error {
	open, size := rereader(r)
	send := func(ctx context.Context) (struct{}, error) {
		req, err := s.bytes(ctx, http.MethodPut, kind, v, user, open())
		if err != nil {
			return struct{}{}, err
		}
		req.ContentLength = size
		resp, err := s.c.http.Do(req)
		if err != nil {
			return struct{}{}, err
		}
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return struct{}{}, responseError(resp)
		}
		data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil || into == nil {
			return struct{}{}, err
		}
		return struct{}{}, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, into)
	}
	if size < 0 {
		_, err := send(ctx) // what was read of r cannot be read again
		return AsError(err)
	}
	_, err := retry(ctx, s.c, true, send)
	return err
}

// rereader gives a function that opens r from where it is, once for each attempt,
// and its size; the size is -1 when r can be read only once.
func rereader(r io.Reader) (open func() io.Reader, size int64) {
	type file interface {
		io.ReaderAt
		io.Seeker
	}
	if f, ok := r.(file); ok {
		start, err := f.Seek(0, io.SeekCurrent)
		if err == nil {
			if end, err := f.Seek(0, io.SeekEnd); err == nil && end > start { // files of /proc say 0
				return func() io.Reader { return io.NewSectionReader(f, start, end-start) }, end - start
			}
			if _, err := f.Seek(start, io.SeekStart); err != nil {
				return func() io.Reader { return failing{err} }, -1
			}
		}
	}
	return func() io.Reader { return io.NopCloser(r) }, -1
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
