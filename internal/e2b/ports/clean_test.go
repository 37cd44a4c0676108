package ports

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"
)

// TestCookies: a box sets cookies for its own host and for no other.
func TestCookies(t *testing.T) {
	port := inside(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Set-Cookie", "a=1; Domain=example.com; Path=/")
		w.Header().Add("Set-Cookie", "b=2; Secure; domain = .example.com")
	})
	res, _ := get(t, bench(t, port, nil), "/")
	if got := fmt.Sprintf("%q", res.Header["Set-Cookie"]); got != `["a=1; Path=/" "b=2; Secure"]` {
		t.Errorf("%s", got)
	}
	res, _ = get(t, bench(t, port, func(t *Target) { t.Shared = true }), "/")
	if len(res.Header["Set-Cookie"]) > 0 {
		t.Errorf("%v", res.Header)
	}
}

// TestHeadersStayWithTheBox: what browsers would apply to other hosts of the site, or to the platform's own, does
// not get out, neither with an answer nor before it.
func TestHeadersStayWithTheBox(t *testing.T) {
	sent := map[string]string{
		"Strict-Transport-Security": "max-age=31536000; includeSubDomains; preload", "Public-Key-Pins": "x", "Alt-Svc": `h3="evil.example:443"`,
		"Clear-Site-Data": `"*"`, "Report-To": "{}", "NEL": `{"include_subdomains":true}`, "Reporting-Endpoints": `a="https://evil.example"`, "Expect-CT": "max-age=1",
		"Set-Cookie2": "a=1", "Service-Worker-Allowed": "/", "Accept-CH": "UA", "Link": "</x>; rel=preload", "Content-Security-Policy": "default-src 'self'", "X-Mine": "1",
	}
	put := func(h http.Header) {
		for k, v := range sent {
			h.Set(k, v)
		}
	}
	port := inside(t, func(w http.ResponseWriter, _ *http.Request) {
		put(w.Header())
		w.WriteHeader(http.StatusEarlyHints)
		put(w.Header())
		w.WriteHeader(http.StatusOK)
	})
	for shared, kept := range map[bool][]string{false: {"Link", "Content-Security-Policy", "X-Mine", "Service-Worker-Allowed", "Accept-CH"}, true: {"Link", "Content-Security-Policy", "X-Mine"}} {
		s := bench(t, port, func(t *Target) { t.Shared = shared })
		var early http.Header
		trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { early = http.Header(h); return nil }}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, s.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		for when, h := range map[string]http.Header{"early": early, "answer": res.Header} {
			left := 0
			for k := range sent {
				if h.Get(k) != "" {
					left++
				}
			}
			for _, k := range kept {
				if h.Get(k) == "" {
					t.Errorf("shared %v, %s: %s is lost", shared, when, k)
				}
			}
			if left != len(kept) {
				t.Errorf("shared %v, %s: %v", shared, when, h)
			}
		}
	}
}
