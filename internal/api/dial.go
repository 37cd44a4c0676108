package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// dialProtocol is the name of the upgrade that turns a request into a byte stream.
const dialProtocol = "dsec-dial"

// dial connects a client to an address inside the box: after 101 the connection
// carries the bytes of one connection there, both ways, half-closes included.
func (a *API) dial(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "network", "addr"); err != nil {
		return err
	}
	network, addr := r.URL.Query().Get("network"), r.URL.Query().Get("addr")
	if network == "" {
		network = "tcp"
	}
	if err := checkDial(network, addr); err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), dialProtocol) || r.ProtoMajor != 1 {
		return errdefs.Userf(errdefs.InvalidArgument, "header Upgrade", "call with HTTP/1.1, 'Connection: Upgrade' and 'Upgrade: "+dialProtocol+"'", "the request does not ask for a byte stream")
	}
	g, release, err := a.guest(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer release()
	inside, err := g.Dial(r.Context(), network, addr)
	if err != nil {
		return err
	}
	defer inside.Close()
	outside, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer outside.Close()
	if _, err := io.WriteString(outside, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+dialProtocol+"\r\n\r\n"); err != nil {
		return nil // the client went away; there is nobody to tell
	}
	join(a.base, outside, buffered.Reader, inside)
	return nil
}

func checkDial(network, addr string) error {
	switch network {
	case "tcp", "tcp4", "tcp6":
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" || len(addr) > 300 {
			return bad("addr", "write host:port as the box sees it, such as localhost:8080", "%q is not an address", clip(addr))
		}
		return nil
	case "unix":
		if addr == "" || len(addr) > 107 || strings.IndexByte(addr, 0) >= 0 {
			return bad("addr", "write the path of a socket in the box", "%q is not a socket's path", clip(addr))
		}
		return nil
	}
	return bad("network", "use tcp, tcp4, tcp6 or unix", "%q is not a network", clip(network))
}

// linger is how long a connection of which the client sends nothing more may be silent: a client that
// is gone for good looks the same, and what it connected to may never notice. Tests shorten it.
var linger = 5 * time.Minute

// lingering is the box's side; once half is set, its silence is bounded.
type lingering struct {
	net.Conn
	half atomic.Bool
}

func (l *lingering) Read(p []byte) (int, error) {
	if l.half.Load() {
		_ = l.SetReadDeadline(time.Now().Add(linger)) // where it cannot be set, the session's clocks end it
	}
	return l.Conn.Read(p)
}

func (l *lingering) sendsNoMore() {
	l.half.Store(true)
	_ = l.SetReadDeadline(time.Now().Add(linger))
}

// join carries bytes both ways until both sides have ended, one broke, or the server stops.
func join(ctx context.Context, outside net.Conn, fromOutside *bufio.Reader, box net.Conn) {
	inside := &lingering{Conn: box}
	defer context.AfterFunc(ctx, func() { outside.Close(); inside.Close() })()
	var wg sync.WaitGroup
	carry := func(dst net.Conn, src io.Reader) {
		if _, err := pump(dst, src); err != nil {
			outside.Close()
			inside.Close()
			return
		}
		if c, ok := dst.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		} else {
			dst.Close()
		}
	}
	wg.Go(func() {
		carry(box, fromOutside)
		inside.sendsNoMore()
	})
	carry(outside, inside)
	wg.Wait()
}
