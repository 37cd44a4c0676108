package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// otherWire is a facade that tells what it was asked.
type otherWire struct{}

func (otherWire) Route(r *http.Request) api.FacadeRoute {
	_, what, ok := strings.Cut(r.URL.Path, "/other/")
	return api.FacadeRoute{Mine: ok, Keyed: what == "keyed" || what == "make", MakesBoxes: what == "make", Proxied: what == "proxied"}
}

func (otherWire) Serve(w http.ResponseWriter, r *http.Request, c api.FacadeCaller) {
	if r.URL.Path == "/other/fail" {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if !strings.HasSuffix(r.URL.Path, "ed") || r.URL.Path == "/other/proxied" {
		if err := c.Allow(r.URL.Query().Get("project")); err != nil {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
	}
	fmt.Fprintf(w, "%s %v", c.Project, c.Operator)
}

func (otherWire) Refuse(w http.ResponseWriter, err error) {
	w.WriteHeader(http.StatusTeapot)
	io.WriteString(w, string(errdefs.From(err).Reason))
}

// TestFacade: the gateway keeps keys and draining for both wires, and leaves the answers to each.
func TestFacade(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Facade = otherWire{} })
	_, other, _ := w.keys.CreateKey(t.Context(), "team", "k")
	ask := func(path, key string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("X-API-Key", key)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return fmt.Sprint(res.StatusCode, " ", string(b))
	}
	defer http.DefaultClient.CloseIdleConnections()
	for _, c := range []struct{ path, key, want string }{
		{"/other/keyed", w.key, "200 default true"}, {"/other/make", other, "200 team false"}, {"/other/keyed", "", "418 unauthenticated"},
		{"/other/keyed", "e2b_00", "418 unauthenticated"}, {"/other/open", "", "200  false"}, {"/other/proxied", "", "200  false"}, {"/other/fail", "", "502 "},
	} {
		if got := ask(c.path, c.key); got != c.want {
			t.Errorf("%s with key %q: %s, want %s", c.path, c.key, got, c.want)
		}
	}
	if got := ask("/metrics", ""); !strings.Contains(got, `dsec_request_seconds_count{call="e2b",code="unavailable"} 1`) {
		t.Error("the metrics do not tell how a call of the facade ended")
	}
	w.api.Drain()
	for path, want := range map[string]string{"/other/make": "418 unavailable", "/other/keyed": "200 default true"} {
		if got := ask(path, w.key); got != want {
			t.Errorf("draining: %s: %s, want %s", path, got, want)
		}
	}
}

// TestFacadeRates: who has no key is bounded by address, who has shown another right by its project.
func TestFacadeRates(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Facade, c.Rate = otherWire{}, api.Rate{PerSecond: 0.001, Burst: 3} })
	defer http.DefaultClient.CloseIdleConnections()
	ask := func(path string) int {
		t.Helper()
		res, err := http.Get(w.url + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for i, want := range []int{200, 200, 200, 429} {
		if got := ask("/other/open?project=p"); got != want {
			t.Errorf("request %d of a project: %d", i, got)
		}
	}
	api.SetStrangerRate(w.api, api.Rate{PerSecond: 0.001, Burst: 4})
	for i, path := range []string{"/other/open", "/other/proxied", "/other/keyed", "/sessions"} { // the last two without a key
		if got := ask(path); got == 429 {
			t.Errorf("stranger's request %d: %d", i, got)
		}
	}
	for _, path := range []string{"/other/open", "/other/keyed", "/dsec.v1.SessionService/List"} {
		if got := ask(path); path == "/other/keyed" && got != 418 || path != "/other/keyed" && got != 429 {
			t.Errorf("%s beyond the rate: %d", path, got)
		}
	}
	if got := ask("/other/open?project=q"); got != 200 {
		t.Error("another project suffers:", got)
	}
}
