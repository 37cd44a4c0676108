package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// forward sends a judged request and its answer; false ends the client's connection.
func (c *connection) forward(req *http.Request) bool {
	if no := c.connect(req.Context()); no != nil {
		c.deny(req, *no)
		return false
	}
	if no := c.prepare(req); no != nil {
		c.deny(req, *no)
		return false
	}
	upgrade := req.Header.Get("Upgrade") != ""
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		req.Header.Del("Expect")
		if _, err := io.WriteString(c.box, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	sent := make(chan error, 1)
	write := func() {
		err := req.Write(c.up.out)
		if err == nil {
			err = c.up.out.Flush()
		}
		sent <- err
	}
	if req.Body == nil || req.Body == http.NoBody {
		write()
	} else {
		go write() // the answer may come before the body has gone
	}
	resp, err := readResponse(c.up.in, req)
	if err != nil {
		c.closeAll(sent)
		return false
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if !upgrade {
			c.closeAll(sent)
			return false
		}
		<-sent
		c.tunnel(resp)
		return false
	}
	ok := c.answerWith(req, resp)
	_ = resp.Body.Close()
	late := time.NewTimer(bodyGrace)
	defer late.Stop()
	select {
	case err := <-sent:
		return ok && err == nil
	case <-late.C:
		c.closeAll(sent)
		return false
	}
}

// bodyGrace is how long the rest of a body may take when the answer has come already.
const bodyGrace = 2 * time.Second

// closeAll ends both connections, so that a body that is still on its way ends too.
func (c *connection) closeAll(sent <-chan error) {
	_ = c.box.Close()
	_ = c.up.conn.Close()
	<-sent
}

// prepare makes the request one that goes on: no upgrade but a WebSocket's, and the credential added.
func (c *connection) prepare(req *http.Request) *refusal {
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header["User-Agent"] = []string{""} // none, instead of Go's
	}
	if u := req.Header["Upgrade"]; len(u) != 1 || !strings.EqualFold(u[0], "websocket") {
		// HTTP/2 in the clear would hide the hosts of its requests.
		req.Header.Del("Upgrade")
		req.Header.Del("Http2-Settings")
		if !req.Close {
			req.Header.Del("Connection")
		}
	}
	for _, h := range []string{"Proxy-Connection", "Proxy-Authorization", "Keep-Alive"} {
		req.Header.Del(h)
	}
	if c.up.cred == "" {
		return nil
	}
	g := c.up.f.Gate()
	if g.Node.Credentials != nil {
		if cred, ok := g.Node.Credentials.Credential(g.ID.Project, c.up.cred); ok {
			req.Header[http.CanonicalHeaderKey(cred.Header)] = []string{cred.Value}
			return nil
		}
	}
	return &refusal{status: http.StatusForbidden, reason: policy.CredentialMissing}
}

// connect makes the upstream connection where there is none.
func (c *connection) connect(ctx context.Context) *refusal {
	u := c.up
	if u.conn != nil {
		return nil
	}
	conn, err := u.f.Dial()
	if err != nil {
		return &refusal{status: http.StatusBadGateway, reason: policy.DialFailed, detail: gate.DialText(err)}
	}
	u.f.OnCut(func() { abort(conn) })
	u.conn = &counted{Conn: conn, f: u.f}
	if c.name != "" {
		t := tls.Client(u.conn, &tls.Config{ServerName: c.name, RootCAs: u.f.Gate().Node.Roots, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return &refusal{status: http.StatusBadGateway, reason: policy.UpstreamUntrusted, detail: err.Error()}
		}
		u.conn = t
	}
	u.in, u.out = newInput(u.conn, u.f.Gate()), bufio.NewWriter(u.conn)
	return nil
}

func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// readResponse reads the final answer, or the switch of protocols; informational ones are dropped.
func readResponse(in *input, req *http.Request) (*http.Response, error) {
	defer in.end()
	for range 8 {
		in.begin()
		resp, err := http.ReadResponse(in.Reader, req)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
	return nil, errors.New("too many informational answers")
}

// answerWith passes a response on; false: the connection cannot take another request.
func (c *connection) answerWith(req *http.Request, resp *http.Response) bool {
	last := req.Close || resp.Close
	if !req.ProtoAtLeast(1, 1) {
		resp.ProtoMinor, resp.TransferEncoding, resp.Close = 0, nil, true
		last = true
	}
	out := bufio.NewWriter(c.box)
	if err := resp.Write(out); err != nil {
		return false
	}
	if err := out.Flush(); err != nil {
		return false
	}
	return !last && (resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || !mayHaveBody(req, resp))
}

func mayHaveBody(req *http.Request, resp *http.Response) bool {
	return req.Method != http.MethodHead && resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusNotModified
}

// tunnel passes a WebSocket's bytes on after its handshake.
func (c *connection) tunnel(resp *http.Response) {
	var head strings.Builder
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	if resp.Header.Write(&head) != nil {
		return
	}
	head.WriteString("\r\n")
	if _, err := io.WriteString(c.box, head.String()); err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(c.box, c.up.in)
		_ = c.box.Close()
		_ = c.up.conn.Close()
	})
	_, _ = io.Copy(c.up.conn, c.in.Reader)
	_ = c.up.conn.Close()
	_ = c.box.Close()
	wg.Wait()
}
