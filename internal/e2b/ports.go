package e2b

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// servePort passes a request on to a server inside the box, WebSockets too. The caller shows one of the
// sandbox's tokens, unless its creator made the ports public.
func (f *Facade) servePort(w http.ResponseWriter, r *http.Request, t *Target) {
	if err := t.authorizePort(r); err != nil {
		WriteError(w, err)
		return
	}
	g, release, err := t.Guest(r.Context())
	if err != nil {
		writeBoxError(w, err)
		return
	}
	defer release()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(t.Port))
	transport := &http.Transport{ // one request: nothing of it is kept
		DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: 10 * time.Minute,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return g.Dial(ctx, "tcp", address) },
	}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      discard,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: address})
			p.Out.Host = p.In.Host
			for _, h := range []string{headerToken, headerTraffic, headerSandbox, headerPort} {
				p.Out.Header.Del(h) // the box must not learn what opens it
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
				return // the client has gone
			}
			writeError(w, http.StatusBadGateway, errdefs.Userf(errdefs.NotFound, "port "+strconv.Itoa(t.Port)+" of sandbox "+t.ID,
				"start the server, on 0.0.0.0 or 127.0.0.1", "nothing answers there: %v", err))
		},
	}
	proxy.ServeHTTP(w, r)
}

// authorizePort wants the traffic token, or envd's, which opens more.
func (t *Target) authorizePort(r *http.Request) error {
	if t.session.Labels[labelPublic] != "" || same(r.Header.Get(headerTraffic), t.boxes.tokens.Traffic(t.ID)) || same(r.Header.Get(headerToken), t.Token()) {
		return nil
	}
	return errdefs.Policyf(errdefs.Forbidden, "port "+strconv.Itoa(t.Port)+" of sandbox "+t.ID,
		"send the sandbox's trafficAccessToken as "+strings.ToLower(headerTraffic)+", or create it with network.allowPublicTraffic", "its ports are not public")
}
