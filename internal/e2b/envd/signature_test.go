package envd

import (
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"
)

// TestSigned: what lets a request in without the token is the right signature alone.
func TestSigned(t *testing.T) {
	const token = "the token"
	later := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	for _, c := range []struct {
		method, path, signature, expiry, header string
		want                                    bool
	}{
		{"GET", "/files", sign("f", opRead, "", token, ""), "", "", true},
		{"HEAD", "/files", sign("f", opRead, "", token, ""), "", "", true},
		{"POST", "/files", sign("f", opWrite, "", token, later), later, "", true},
		{"POST", "/files", sign("f", opRead, "", token, ""), "", "", false},
		{"GET", "/files", sign("f", opRead, "", "another", ""), "", "", false},
		{"GET", "/files", sign("f", opRead, "", token, "1"), "1", "", false},
		{"GET", "/files", sign("f", opRead, "", token, ""), "", "a wrong token", false},
		{"GET", "/health", sign("f", opRead, "", token, ""), "", "", false},
		{"GET", "/files", "", "", "", false},
	} {
		q := url.Values{"path": {"f"}, "signature": {c.signature}}
		if c.expiry != "" {
			q.Set("signature_expiration", c.expiry)
		}
		r := httptest.NewRequest(c.method, c.path+"?"+q.Encode(), nil)
		r.Header.Set(headerToken, c.header)
		if got := Signed(r, token); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
