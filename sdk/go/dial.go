package dsec

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Dial connects to an address inside the session's box: network "tcp" with
// "host:port", or "unix" with a path. Together with a listener it forwards ports.
func (s *Session) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	req, err := s.bytes(ctx, http.MethodGet, "dial", url.Values{"network": {network}, "addr": {addr}}, "", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "dsec-dial")
	conn, err := s.c.dial(ctx)
	if err != nil {
		return nil, AsError(err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	fail := func(err error) (net.Conn, error) {
		conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, AsError(err)
	}
	if err := req.Write(conn); err != nil {
		return fail(err)
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		err = responseError(resp)
		return fail(err)
	}
	if !stop() {
		return fail(ctx.Err())
	}
	return &dialed{Conn: conn, r: br}, nil
}

// dialed gives first what arrived together with the answer.
type dialed struct {
	net.Conn
	r *bufio.Reader
}

func (d *dialed) Read(b []byte) (int, error) { return d.r.Read(b) }

// CloseWrite tells the other side that nothing follows.
func (d *dialed) CloseWrite() error {
	if c, ok := d.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func dialServer(ctx context.Context, u *url.URL, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (net.Conn, error) {
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), map[string]string{"https": "443"}[u.Scheme])
		if u.Scheme != "https" {
			addr = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil || u.Scheme != "https" {
		return conn, err
	}
	t := tls.Client(conn, &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}})
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return t, nil
}
