package envd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// taker is a guest that takes files and does nothing else.
type taker struct {
	guestclient.API
	t     *testing.T
	paths map[string]bool
}

func (g *taker) WriteFile(_ context.Context, o guestclient.WriteOptions, r io.Reader) (*guestproto.FileInfo, error) {
	if _, err := io.Copy(io.Discard, r); err != nil {
		if _, ok := errors.AsType[*errdefs.Error](err); !ok {
			g.t.Errorf("an untyped error: %v", err)
		}
		return nil, err
	}
	if o.Path == "" || len(o.Path) >= guestproto.MaxPath || strings.IndexByte(o.Path, 0) >= 0 || g.paths[o.Path] {
		g.t.Errorf("path %q reaches the guest", o.Path)
	}
	g.paths[o.Path] = true
	return &guestproto.FileInfo{Path: o.Path}, nil
}

// FuzzFiles: whatever a client sends to /files, nothing gets by without a token or a signature,
// no path reaches a box that cannot be one, and every refusal is the client's fault and says so.
func FuzzFiles(f *testing.F) {
	form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a/b\"\r\n\r\nx\r\n--b--\r\n"
	f.Add("path=/a&username=user", testToken, "application/octet-stream", "", "x")
	f.Add("", testToken, "multipart/form-data; boundary=b", "", form)
	f.Add("", testToken, "multipart/form-data; boundary=b", "gzip", zipped(form))
	f.Add("path=/a&signature="+strings.ReplaceAll(sign("/a", opWrite, "", testToken, ""), "+", "%2B"), "", "application/octet-stream", "identity", "x")
	f.Add("path=/a&signature_expiration=9&signature=v1_", "", "a/b", "br", "x")
	f.Add("path=~x", testToken, "multipart/mixed; boundary=\"\"", "gzip", "\x1f\x8b")
	f.Fuzz(func(t *testing.T, query, token, kind, encoding, body string) {
		g := &taker{t: t, paths: map[string]bool{}}
		h := New(Config{Sandbox: func(context.Context) Sandbox {
			return Sandbox{ID: "s", Token: testToken, Guest: func(context.Context) (guestclient.API, func(), error) { return g, func() {}, nil }}
		}})
		r := httptest.NewRequest(http.MethodPost, "/files", strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header[headerToken] = []string{token}
		r.Header["Content-Type"], r.Header["Content-Encoding"] = []string{kind}, []string{encoding}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		allowed := token == testToken || token == "" && strings.Contains(query, "v1_")
		if len(g.paths) > 0 && !allowed {
			t.Errorf("%v was written without a right to", g.paths)
		}
	})
}

// FuzzUser: a user's name is one, or the request is refused.
func FuzzUser(f *testing.F) {
	f.Add("user")
	f.Add("a:b")
	f.Add("../x")
	f.Fuzz(func(t *testing.T, name string) {
		if checkUser(name) == nil && strings.ContainsAny(name, "/: \x00\n") {
			t.Errorf("%q", name)
		}
		_ = readNote(name)
		if d, err := directory(name, ""); err == nil && (d[0] != '/' && d != "~" && !strings.HasPrefix(d, "~/")) {
			t.Errorf("%q starts in %q", name, d)
		}
	})
}
