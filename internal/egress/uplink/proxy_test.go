package uplink

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/boxenv"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

func TestExplicitProxy(t *testing.T) {
	w := webWorld(t)
	w.DNS.Set("raw.test", egresstest.GoodAddr)
	w.DNS.Set("inside.test", egresstest.ServiceAddr)
	w.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = io.Copy(c, c) })
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.net.Proxy(t.Context(), ln, egress.Attachment{Box: egress.Identity{Box: "x"}, Policy: whitelist(t, []string{"good.test", "also.test", "raw.test:7000", "inside.test"})})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(false)
	env := boxenv.Proxy(ln.Addr().String())
	at, err := url.Parse(strings.TrimPrefix(env[0], "http_proxy="))
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{RootCAs: w.CA.Pool}}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	for _, u := range []string{"https://good.test/a", "http://good.test/b", "http://also.test/c", "https://also.test/d"} {
		if code, body := get(t, c, u); code != 200 || !strings.Contains(body, "host ") {
			t.Errorf("%s: %d %s", u, code, body)
		}
	}
	for u, reason := range map[string]policy.Reason{
		"http://evil.test/": policy.NameNotAllowed, "http://127.0.0.1/": policy.AddressForbidden, "http://inside.test/": policy.AddressPrivate,
		"http://good.test:81/": policy.PortNotAllowed, "http://" + egresstest.GoodAddr + "/": policy.HostRefused,
	} {
		if code, body := get(t, c, u); code != 403 || !strings.Contains(body, string(reason)) {
			t.Errorf("%s: %d %s", u, code, body)
		}
	}
	if _, err := c.Get("https://evil.test/"); err == nil || !strings.Contains(err.Error(), "Refused by the egress policy: evil.test") {
		t.Errorf("CONNECT: %v", err)
	}
	connect := func(target, then string) string {
		conn, err := net.Dial("tcp4", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n%s", target, target, then)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
		if err != nil {
			return err.Error()
		}
		if resp.StatusCode != 200 {
			return resp.Status
		}
		buf := make([]byte, 4)
		n, err := io.ReadFull(in, buf)
		return fmt.Sprint(string(buf[:n]), " ", err)
	}
	if got := connect("raw.test:7000", "ping"); got != "ping <nil>" {
		t.Errorf("raw: %s", got)
	}
	// CONNECT to an allowed name is no way to another one behind the same address.
	for name, first := range map[string]string{"HTTP": "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "bytes": "SSH-2.0-x\r\n\r\n"} {
		if got := connect("good.test:443", first); strings.HasPrefix(got, "HTTP/1.1 200") || strings.HasPrefix(got, "ping") {
			t.Errorf("%s inside: %s", name, got)
		}
	}
	if err := l.Switch(t.Context(), compile(t, policy.Spec{Mode: policy.Deny})); err != nil {
		t.Fatal(err)
	}
	tr.CloseIdleConnections()
	if code, body := get(t, c, "http://good.test/"); code != 403 || !strings.Contains(body, string(policy.PolicyDenies)) {
		t.Errorf("after the switch: %d %s", code, body)
	}
}
