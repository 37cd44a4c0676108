package template

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// TestRegistriesAtPublicAddressesOnly: a reference of somebody who does not run the server leads to no address of its
// network, unless the operator has listed the registry.
func TestRegistriesAtPublicAddressesOnly(t *testing.T) {
	asked := 0
	inner := registry.New()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		inner.ServeHTTP(w, r)
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	_, port, _ := strings.Cut(host, ":")
	s := open(t, t.TempDir(), Options{})
	for _, at := range []string{host, "localhost:" + port, "[::1]:" + port, "[::ffff:127.0.0.1]:" + port, "0.0.0.0:" + port, "169.254.169.254", "10.0.0.1:" + port, "192.168.1.1", "100.100.100.200"} {
		_, err := s.ImageDigest(t.Context(), Source{Kind: Registry, Ref: at + "/team/app:1", Guarded: true})
		if e := errdefs.From(err); e == nil || e.Reason != errdefs.Forbidden || e.Remedy == "" {
			if e != nil && e.Reason == errdefs.InvalidArgument {
				continue // no name of a registry at all
			}
			t.Errorf("%s: %v", at, err)
		}
	}
	if asked > 0 {
		t.Errorf("the registry was asked %d times", asked)
	}
	for what, with := range map[string]Registries{"listed": {Allowed: []string{host}}, "mirror of itself": {Mirrors: map[string]string{host: host}}} {
		s := open(t, t.TempDir(), Options{Registries: with})
		if _, err := s.ImageDigest(t.Context(), Source{Kind: Registry, Ref: host + "/team/app:1", Guarded: true}); errdefs.From(err).Reason != errdefs.NotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.ImageDigest(t.Context(), Source{Kind: Registry, Ref: host + "/team/app:1"}); errdefs.From(err).Reason != errdefs.NotFound {
		t.Errorf("the operator's own import: %v", err)
	}
}

// TestGuardWatchesRedirectsAndProxies: neither leads to where a name may not.
func TestGuardWatchesRedirectsAndProxies(t *testing.T) {
	proxied := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied++
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	tr := newGuarded(http.ProxyURL(at))
	defer tr.CloseIdleConnections()
	for target, reached := range map[string]int{"http://127.0.0.1:1/": 0, "http://192.0.2.1/": 1} { // the second redirects
		proxied = 0
		res, err := (&http.Client{Transport: tr}).Get(target)
		if err == nil {
			res.Body.Close()
		}
		if e, ok := errors.AsType[*errdefs.Error](err); !ok || e.Reason != errdefs.Forbidden || proxied != reached {
			t.Errorf("%s: %v, the proxy was asked %d times", target, err, proxied)
		}
	}
}
