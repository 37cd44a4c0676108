package uplink

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// client is an HTTP client in the box that trusts the lab's authority.
func (b *testBox) client() *http.Client {
	t := &http.Transport{
		DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
			host, port, _ := net.SplitHostPort(addr)
			a, err := b.lookup(host)
			if err != nil {
				return nil, err
			}
			return b.dial("tcp4", net.JoinHostPort(a[0].Unmap().String(), port))
		},
		TLSClientConfig: &tls.Config{RootCAs: b.w.CA.Pool},
	}
	b.w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: 10 * time.Second}
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func webWorld(t *testing.T) *world {
	w := newWorld(t)
	for _, n := range []string{"good.test", "also.test", "evil.test"} {
		w.DNS.Set(n, egresstest.GoodAddr)
	}
	w.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	w.HTTP(egresstest.GoodAddr+":443", true, http.HandlerFunc(egresstest.Hello))
	return w
}

func TestTLSByName(t *testing.T) {
	w := webWorld(t)
	b := w.attach(whitelist(t, []string{"good.test", "also.test"}))
	for _, n := range []string{"good.test", "also.test"} {
		c := b.client()
		code, body := get(t, c, "https://"+n+"/x")
		c.CloseIdleConnections()
		if code != 200 || !strings.Contains(body, "host "+n) {
			t.Errorf("%d %s", code, body)
		}
	}
	w.Sink.Take()
	time.Sleep(200 * time.Millisecond) // the connections' ends are on their way
	before := w.Uplink()
	for _, tc := range []struct {
		name   string
		first  func(c net.Conn)
		reason policy.Reason
	}{
		{"another name", func(c net.Conn) { _ = tls.Client(c, &tls.Config{ServerName: "evil.test"}).Handshake() }, policy.ServerNameRefused},
		{"no name", func(c net.Conn) { _ = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }, policy.ServerNameMissing},
		{"half a hello", func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 1, 0, 200, 1, 0}); _ = c.(*net.TCPConn).CloseWrite() }, policy.NotTLS},
		{"a malformed hello", func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0}) }, policy.NotTLS},
		{"SSH", func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH_9\r\n")) }, policy.NotHTTP},
		{"HTTP for another host", func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n") }, policy.HostRefused},
		{"HTTP in the clear on a TLS rule", func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n") }, policy.HostRefused},
	} {
		c, err := b.dial("tcp4", egresstest.GoodAddr+":443")
		if err != nil {
			t.Fatal(tc.name, err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		tc.first(c)
		if _, err := io.ReadAll(c); errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("%s: %v", tc.name, err)
		}
		c.Close()
		w.find(tc.name, func(d egress.Decision) bool { return d.Verdict == egress.Deny && d.Reason == tc.reason })
	}
	if n := w.Uplink() - before; n != 0 {
		t.Errorf("%d packets left the node", n)
	}
}

// slowWriter sends every byte as a packet of its own, and TLS records of a few bytes.
type slowWriter struct{ net.Conn }

func (s slowWriter) Write(b []byte) (int, error) {
	out := b
	if b[0] == 22 && len(b) > 100 {
		out = nil
		for msg := b[5:]; len(msg) > 0; {
			k := min(37, len(msg))
			out = append(append(out, 22, 3, 1, 0, byte(k)), msg[:k]...)
			msg = msg[k:]
		}
	}
	for i := 0; i < len(out); i += 29 {
		if _, err := s.Conn.Write(out[i:min(i+29, len(out))]); err != nil {
			return 0, err
		}
		time.Sleep(200 * time.Microsecond)
	}
	return len(b), nil
}

func TestSplitHello(t *testing.T) {
	w := webWorld(t)
	b := w.attach(whitelist(t, []string{"good.test"}))
	addr := b.must("good.test").String() + ":443"
	for name, ok := range map[string]bool{"good.test": true, "evil.test": false} {
		c, err := b.dial("tcp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		err = tls.Client(slowWriter{c}, &tls.Config{ServerName: name, RootCAs: w.CA.Pool}).Handshake()
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

// echConfig makes a key for encrypted hellos.
func echConfig(t *testing.T, id byte, public string) (list, config []byte, key *ecdh.PrivateKey) {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte{id, 0, 0x20, 0, 32}
	body = append(body, key.PublicKey().Bytes()...)
	body = append(body, 0, 4, 0, 1, 0, 1, 32, byte(len(public)))
	body = append(append(body, public...), 0, 0)
	config = append(binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body))), body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...), config, key
}

// A real encrypted hello names hidden.test inside and good.test outside.
func TestEncryptedHello(t *testing.T) {
	w := newWorld(t)
	list, config, key := echConfig(t, 7, "good.test")
	srv := w.CA.ServerTLS()
	srv.EncryptedClientHelloKeys = []tls.EncryptedClientHelloKey{{Config: config, PrivateKey: key.Bytes(), SendAsRetry: true}}
	w.Handle(egresstest.GoodAddr+":443", func(c net.Conn) {
		s := tls.Server(c, srv)
		if s.Handshake() == nil {
			fmt.Fprint(s, s.ConnectionState().ServerName)
			_ = s.CloseWrite()
		}
	})
	w.DNS.Set("good.test", egresstest.GoodAddr)
	talk := func(b *testBox, list []byte) (string, error) {
		c, err := b.dial("tcp4", b.must("good.test").String()+":443")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		s := tls.Client(c, &tls.Config{ServerName: "hidden.test", RootCAs: w.CA.Pool, EncryptedClientHelloConfigList: list, MinVersion: tls.VersionTLS13})
		if err := s.Handshake(); err != nil {
			return "", err
		}
		b2, err := io.ReadAll(s)
		return string(b2), err
	}
	deny := w.attach(whitelist(t, []string{"good.test"}))
	allow := w.attach(compile(t, policy.Spec{Mode: policy.Whitelist, Domains: []policy.Domain{{Name: "good.test", ECH: policy.ECHAllow}}}))

	w.DNS.SetECH("good.test", list)
	if got, err := talk(allow, list); err != nil || got != "hidden.test" {
		t.Errorf("ech: allow: %q, %v", got, err)
	}
	w.Sink.Take()
	if got, err := talk(deny, list); err == nil {
		t.Errorf("ech: deny lets out %q", got)
	}
	d := w.find("the encrypted hello", func(d egress.Decision) bool { return d.Reason == policy.HelloEncrypted })
	if d.Name != "good.test" || d.Rule == "" || !strings.Contains(d.Detail, "ech: allow") {
		t.Errorf("%+v", d)
	}
	// Random content, as browsers send it, reaches the server, which answers as good.test.
	grease, _, _ := echConfig(t, 99, "good.test")
	_, err := talk(deny, grease)
	if rejected, ok := errors.AsType[*tls.ECHRejectionError](err); !ok || rejected == nil {
		t.Errorf("random content: %v", err)
	}
}

func TestHTTPByRequest(t *testing.T) {
	w := webWorld(t)
	b := w.attach(whitelist(t, []string{"good.test", "also.test"}))
	b.must("good.test")
	b.must("also.test")
	talk := func(text string) []string {
		c, err := b.dial("tcp4", egresstest.GoodAddr+":80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		var out []string
		for in := bufio.NewReader(c); ; {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return out
			}
			body, _ := io.ReadAll(resp.Body)
			out = append(out, fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(body))))
		}
	}
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"keep-alive, then another host", "GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n", []string{"200 at", "403 dsec: the egress policy refuses this request to evil.test"}},
		{"pipelined for two allowed hosts", "GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: also.test:80\r\nConnection: close\r\n\r\n", []string{"200 at", "200 at"}},
		{"body", "POST /p HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n", []string{"200 at", "200 at"}},
		{"chunked body", "POST /p HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", []string{"200 at"}},
		{"expects to go on", "POST /p HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", []string{"100", "200 at"}},
		{"two lengths", "POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello", []string{"400"}},
		{"length and chunks", "POST / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", []string{"200 at"}},
		{"two hosts", "GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", []string{"400"}},
		{"no host", "GET / HTTP/1.0\r\n\r\n", []string{"403"}},
		{"host with user", "GET / HTTP/1.1\r\nHost: good.test@evil.test\r\n\r\n", []string{"403"}},
		{"absolute", "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", []string{"403"}},
		{"CONNECT", "CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", []string{"403"}},
		{"HTTP/2 in the clear", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []string{"400"}},
		{"HTTP/1.0", "GET /old HTTP/1.0\r\nHost: good.test\r\n\r\n", []string{"200 at"}},
		{"folded header", "GET / HTTP/1.1\r\nHost: good.test\r\nX: a\r\n b\r\nConnection: close\r\n\r\n", []string{"200 at"}},
		{"space before the colon", "GET / HTTP/1.1\r\nHost : evil.test\r\nHost: good.test\r\n\r\n", []string{"400"}},
		{"endless head", "GET / HTTP/1.1\r\nHost: good.test\r\nX: " + strings.Repeat("a", 300<<10) + "\r\n\r\n", []string{"400"}},
		{"upgrade to HTTP/2", "GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\nGET /end HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n", []string{"200 at", "200 at"}},
	} {
		start := time.Now()
		got := talk(tc.text)
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("%s took %v", tc.name, d)
		}
		if len(got) != len(tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], tc.want[i]) {
				t.Errorf("%s: %q, want %q", tc.name, got[i], tc.want[i])
			}
			if strings.Contains(got[i], "Upgrade: h2c") {
				t.Errorf("%s: the upgrade was passed on", tc.name)
			}
		}
	}
	d := w.find("a request", func(d egress.Decision) bool {
		return d.Kind == egress.Request && d.Verdict == egress.Allow && d.Detail == "GET /old"
	})
	if d.Name != "good.test" || d.Protocol != policy.HTTP || d.Rule == "" {
		t.Errorf("%+v", d)
	}
}

func TestBigBodiesBothWays(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.Copy(rw, r.Body) }))
	b := w.attach(whitelist(t, []string{"good.test"}))
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	resp, err := b.client().Post("http://good.test/", "application/octet-stream", bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, payload) {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(payload), err)
	}
}

func TestWebSocket(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.Handle(egresstest.GoodAddr+":80", func(c net.Conn) {
		in := bufio.NewReader(c)
		req, err := http.ReadRequest(in)
		if err != nil || req.Header.Get("Upgrade") != "websocket" {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst")
		_, _ = io.Copy(c, in)
	})
	b := w.attach(whitelist(t, []string{"good.test"}))
	c, err := b.dial("tcp4", b.must("good.test").String()+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" {
		t.Fatal(resp, err)
	}
	got := make([]byte, len("firstearly"))
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "firstearly" {
		t.Errorf("%q, %v", got, err)
	}
	// A switch to a policy without the host cuts it.
	start := time.Now()
	if err := b.Switch(t.Context(), whitelist(t, []string{"other.test"})); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("after the switch: %v", err)
	}
	if d := time.Since(start); d > quick {
		t.Errorf("the cut took %v", d)
	}
}

// Names with different rules behind one address and port.
func TestNamesThatShareAnAddress(t *testing.T) {
	w := webWorld(t)
	b := w.attach(whitelist(t, []string{"good.test:443/tls", "also.test:443/tcp"}))
	b.must("good.test")
	if _, err := b.client().Get("https://evil.test/"); err == nil {
		t.Error("another name was let out")
	}
	for _, n := range []string{"good.test", "also.test"} {
		if code, body := get(t, b.client(), "https://"+n+"/"); code != 200 {
			t.Errorf("%s: %d %s", n, code, body)
		}
	}
}
