package web

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// What a client shows of an answer differs: each is told in what it shows.
func TestSay(t *testing.T) {
	no := refusal{status: http.StatusForbidden, reason: policy.NameNotAllowed}
	request := func(method string, header ...string) *http.Request {
		r := &http.Request{Method: method, Header: http.Header{}}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	for _, tc := range []struct {
		what    string
		req     *http.Request
		no      refusal
		name    string
		status  int
		kind    string
		in      string // of the body
		phrase  string
		hasType string
	}{
		{"any client", request("GET"), no, "evil.test", 403, "text/plain", "What would allow it says: dsec net explain s", "Refused by the egress policy: evil.test: no rule names it (name-not-allowed); see dsec net explain s", ""},
		{"no request", nil, no, "", 403, "text/plain", "dsec: the egress policy refuses this request: ", "Refused by the egress policy: no rule names it", ""},
		{"npm", request("GET", "Accept", "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*"), no, "evil.test", 403, "application/json", `"error":"dsec: the egress policy refuses`, "Refused", ""},
		{"a browser", request("GET", "Accept", "text/html,application/json"), no, "evil.test", 403, "text/plain", "refuses", "Refused", ""},
		{"pip's index", request("GET", "User-Agent", "pip/23.2.1 {}", "Accept", "application/vnd.pypi.simple.v1+json, text/html; q=0.01"), no, "evil.test", 300, "text/plain", "refuses", "Refused", `refused="dsec: the egress policy refuses this request to evil.test`},
		{"an old pip's index", request("GET", "User-Agent", "pip/20.0", "Accept", "text/html"), no, "evil.test", 300, "text/plain", "refuses", "Refused", "dsec net explain s"},
		{"pip's file", request("GET", "User-Agent", "pip/23.2.1", "Accept", "*/*"), no, "evil.test", 403, "text/plain", "refuses", "Refused", ""},
		{"another program that asks for an index", request("GET", "User-Agent", "uv/0.5", "Accept", "application/vnd.pypi.simple.v1+json"), no, "evil.test", 403, "application/json", "refuses", "Refused", ""},
		{"HEAD", request("HEAD"), no, "evil.test", 403, "text/plain", "", "Refused", ""},
		{"a server that is away", request("GET"), refusal{status: http.StatusBadGateway, reason: policy.DialFailed, detail: "connection refused"}, "good.test", 502, "text/plain", "good.test cannot be reached: ", "Bad Gateway", ""},
		{"line breaks", request("GET"), refusal{status: http.StatusForbidden, reason: policy.HostRefused}, "b\r\nX-Evil: 1", 403, "text/plain", "refuses", "Refused", ""},
	} {
		var b bytes.Buffer
		say(&b, tc.req, tc.no, tc.name, "s")
		resp, err := http.ReadResponse(bufio.NewReader(&b), tc.req)
		if err != nil {
			t.Errorf("%s: %v", tc.what, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		kind := resp.Header.Get("Content-Type")
		if err != nil || resp.StatusCode != tc.status || !strings.HasPrefix(kind, tc.kind) || !strings.Contains(kind, tc.hasType) || !strings.Contains(string(body), tc.in) || !strings.Contains(resp.Status, tc.phrase) {
			t.Errorf("%s: %s, %s, %q, %v", tc.what, resp.Status, kind, body, err)
		}
		if tc.kind == "application/json" && !json.Valid(body) {
			t.Errorf("%s: %s", tc.what, body)
		}
		if resp.Header.Get("X-Evil") != "" || !resp.Close {
			t.Errorf("%s: %v", tc.what, resp.Header)
		}
	}
}
