package web

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress/gate"
)

// What is passed on is one request that any reader sees alike: written anew and read again, it has
// the same host, and no second request hides behind it.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: b.test\r\n\r\n", "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"OPTIONS * HTTP/1.1\nHost: a.test:80\nUpgrade: websocket\nConnection: upgrade\n\n", "GET //b.test/x HTTP/1.0\r\nHost: a.test\r\nExpect: 100-continue\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, err := newInput(stream{Reader: bytes.NewReader(b)}, &gate.Gate{}).request()
		if err != nil {
			return
		}
		if req.URL.IsAbs() || req.URL.Host != "" || req.Method == http.MethodConnect {
			return // refused before
		}
		name, no := hostName(req.Host, 80)
		if no != nil {
			return
		}
		c := &connection{up: &upstream{}}
		if no := c.prepare(req); no != nil {
			t.Fatal(no)
		}
		var out bytes.Buffer
		if req.Write(&out) != nil {
			return // a body that breaks off
		}
		in := bufio.NewReader(&out)
		again, err := http.ReadRequest(in)
		if err != nil {
			t.Fatalf("%q became %q: %v", b, out.Bytes(), err)
		}
		if got, no := hostName(again.Host, 80); no != nil || got != name || len(again.Header["Host"]) > 0 {
			t.Fatalf("host %q became %q", name, again.Host)
		}
		_, _ = io.Copy(io.Discard, again.Body)
		if rest, _ := io.ReadAll(in); len(rest) > 0 {
			t.Fatalf("%q leaves %q behind the request", b, rest)
		}
		if u := again.Header.Get("Upgrade"); u != "" && !strings.EqualFold(u, "websocket") {
			t.Fatalf("an upgrade to %q is passed on", u)
		}
	})
}
