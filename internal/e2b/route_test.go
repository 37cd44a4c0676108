package e2b

import (
	"net/http/httptest"
	"strings"
	"testing"
)

const anID = "s1k1g3gmcaszrrf8pdwpkkzdj6"

func TestRoute(t *testing.T) {
	f := New(Config{})
	for _, c := range []struct {
		method, target, host string
		headers              map[string]string
		want                 string // what is true of the route
	}{
		{"GET", "/health", "", nil, "mine"},
		{"POST", "/sandboxes", "", nil, "mine keyed makes"},
		{"POST", "/v2/sandboxes", "", nil, "mine keyed makes"},
		{"GET", "/v2/sandboxes", "", nil, "mine keyed"},
		{"POST", "/sandboxes/x/connect", "", nil, "mine keyed"},
		{"GET", "/templates", "", nil, "mine keyed"},
		{"POST", "/v3/templates", "", nil, "mine keyed"},
		{"PUT", "/volumecontent/v/file", "", nil, "mine"},
		{"GET", "/sandboxesque", "", nil, ""},
		{"POST", "/dsec.v1.SessionService/Create", "", nil, ""},
		{"PUT", "/v1/templates/x", "", nil, ""},
		{"GET", "/metrics", "", nil, ""},
		{"GET", "/", "", nil, ""},
		{"GET", "/metrics", "", map[string]string{headerSandbox: anID}, "mine"},
		{"GET", "/files", "", map[string]string{headerToken: anID + ".x"}, "mine streamed"},
		{"POST", "/filesystem.Filesystem/Stat", "", map[string]string{headerToken: anID + ".x"}, "mine"},
		{"PUT", "/templates/x/files/y", "", nil, "mine streamed"},
		{"GET", "/files", "", map[string]string{headerToken: "x.y"}, ""},
		{"POST", "/sandboxes/x/connect", "", map[string]string{headerSandbox: anID, headerPort: "49983"}, "mine keyed"},
		{"GET", "/dsec.v1.X/Y", "", map[string]string{headerToken: anID + ".x"}, ""},
		{"POST", "/sandboxes", "", map[string]string{headerSandbox: anID, headerPort: "49999"}, "mine proxied"},
		{"GET", "/x", "", map[string]string{headerSandbox: "no id at all"}, "mine"},
		{"POST", "/sandboxes/" + anID + "/connect", "", map[string]string{headerSandbox: anID, headerPort: "49983"}, "mine keyed"}, // an SDK of a year ago
		{"GET", "/sandboxes", "", map[string]string{headerSandbox: anID, headerPort: "8000"}, "mine proxied"},
		{"GET", "/files", "49983-" + anID + ".localhost:8642", nil, "mine streamed"},
		{"GET", "/", "8000-" + anID + ".boxes.example.com", nil, "mine proxied"},
		{"GET", "/healthz", "8000-" + anID + ".boxes.example.com", nil, "mine proxied"},
		{"GET", "/", "8000-other.example.com", nil, ""},
		{"GET", "/", "70000-" + anID + ".example.com", nil, ""},
		{"GET", "/", "-" + anID + ".example.com", nil, ""},
		{"GET", "/", "+80-" + anID + ".example.com", nil, ""},
		{"GET", "/", anID + ".example.com", nil, ""},
	} {
		r := httptest.NewRequest(c.method, "http://server"+c.target, nil)
		if c.host != "" {
			r.Host = c.host
		}
		for k, v := range c.headers {
			r.Header.Set(k, v)
		}
		route := f.Route(r)
		var got []string
		for _, p := range []struct {
			is   bool
			name string
		}{{route.Mine, "mine"}, {route.Keyed, "keyed"}, {route.MakesBoxes, "makes"}, {route.Streamed, "streamed"}, {route.Proxied, "proxied"}} {
			if p.is {
				got = append(got, p.name)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s %s at %q %v: %q, want %q", c.method, c.target, c.host, c.headers, s, c.want)
		}
	}
}

func FuzzBoxAddress(f *testing.F) {
	f.Add("8000-"+anID+".example.com", "", "")
	f.Add("x", anID, "49983")
	f.Fuzz(func(t *testing.T, host, sandbox, port string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		r.Header[headerSandbox], r.Header[headerPort] = []string{sandbox}, []string{port}
		_, p, ok := boxAddress(r)
		if p < 0 || p > 65535 || ok != (sandbox != "") && p == 0 {
			t.Fatalf("port %d, %v", p, ok)
		}
	})
}
