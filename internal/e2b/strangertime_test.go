package e2b

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// lookups counts how often a sandbox is looked for.
type lookups struct {
	Control
	n int
}

func (l *lookups) Locate(context.Context, string) (*control.Session, error) {
	l.n++
	return nil, errdefs.Userf(errdefs.NotFound, "session", "", "there is none")
}

// Nobody learns from the time of an answer whether a sandbox is there: without a right it is not looked for.
func TestStrangersMakeNoLookups(t *testing.T) {
	tokens, err := OpenTokens(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	counted := &lookups{}
	f := New(Config{
		Sandboxes: NewSandboxes(counted, tokens),
		Envd:      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { WriteJSON(w, 401, TargetOf(r.Context()).ID) }),
		Signed:    func(r *http.Request, token string) bool { return r.URL.Query().Get("signature") == token },
	})
	for _, c := range []struct {
		target, token string
		want          int
	}{
		{"/process.Process/List", "", 0},
		{"/process.Process/List", "x", 0},
		{"/files?path=x&signature=guessed", "", 0},
		{"/files?path=x&signature=" + tokens.Envd(anID), "", 1},
		{"/process.Process/List", tokens.Envd(anID), 1},
		{"/process.Process/List", tokens.Traffic(anID), 0},
	} {
		counted.n = 0
		r := httptest.NewRequest("POST", c.target, nil)
		r.Header.Set(headerSandbox, anID)
		r.Header.Set(headerToken, c.token)
		w := httptest.NewRecorder()
		f.Serve(w, r, api.FacadeCaller{Allow: func(string) error { return nil }})
		if counted.n != c.want || !strings.Contains(w.Body.String(), anID) {
			t.Errorf("%s with %q: %d look-ups, %d %s", c.target, c.token, counted.n, w.Code, w.Body)
		}
	}
}
