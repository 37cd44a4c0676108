package ports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
)

// Target is a port of a box.
type Target struct {
	Sandbox string
	Port    int
	// Shared tells that the request came to the platform's own address and named the box by a
	// header: then the answer may set no cookies.
	Shared bool
	// Guest gives the box's guest; it counts as activity until release.
	Guest func(ctx context.Context) (guest guestclient.API, release func(), err error)
}

// Limits of what a server in a box may take.
const (
	maxAnswerHeader = 256 << 10
	answerPatience  = 10 * time.Minute // until its answer begins
)

// secrets are headers that open something here. The box gets none of them.
var secrets = []string{"X-Api-Key", "X-Access-Token", "E2b-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port", "Dsec-Project"}

var discard = log.New(io.Discard, "", 0)

// Serve passes a request on, and tells in E2B's words when nothing answers.
func Serve(w http.ResponseWriter, r *http.Request, t Target) {
	g, release, err := t.Guest(r.Context())
	if err != nil {
		t.refuse(w, err)
		return
	}
	defer release()
	// A server may answer before it has read the request to its end. Without this the request's body is closed
	// as soon as the answer begins, and a transport that was about to look for its end breaks the answer off.
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is so without
	address := net.JoinHostPort("localhost", strconv.Itoa(t.Port))
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{ // for one request: nothing of it is kept
			DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: answerPatience, MaxResponseHeaderBytes: maxAnswerHeader,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return g.Dial(ctx, "tcp", address) },
		},
		FlushInterval:  -1,
		ErrorLog:       discard,
		Rewrite:        func(p *httputil.ProxyRequest) { rewrite(p, address) },
		ModifyResponse: func(res *http.Response) error { t.clean(res.Header); return nil },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // else nobody waits
				t.refuse(w, err)
			}
		},
	}
	proxy.ServeHTTP(&early{w, t}, r)
}

func rewrite(p *httputil.ProxyRequest, address string) {
	p.SetURL(&url.URL{Scheme: "http", Host: address})
	p.Out.Host = p.In.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it is, also where it is no form
	for _, h := range secrets {
		p.Out.Header.Del(h)
	}
	if isKey(p.Out.Header.Get("Authorization")) {
		p.Out.Header.Del("Authorization")
	}
}

// isKey tells a key of this platform from what the server in the box may ask for itself.
func isKey(authorization string) bool {
	_, token, ok := strings.Cut(authorization, " ")
	if !ok {
		token = authorization
	}
	return strings.HasPrefix(strings.TrimSpace(token), "e2b_")
}

// refuse says in E2B's words why nothing answers: its SDKs look for "was not found" and for
// "port is not open".
func (t Target) refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	e, typed := errors.AsType[*errdefs.Error](err)
	e = errdefs.Public(e)
	message := "the server on port " + strconv.Itoa(t.Port) + " broke off before its answer"
	var timeout net.Error
	switch {
	case typed && e.Reason == errdefs.Unavailable && e.Class == errdefs.User:
		message = "The sandbox is running but port is not open"
	case typed && (e.Reason == errdefs.Conflict || e.Reason == errdefs.NotFound || e.Reason == errdefs.BoxGone || e.Reason == errdefs.BoxTampered):
		message = "The sandbox was not found: " + e.Message
	case typed && e.Reason == errdefs.TimedOut:
		status, message = http.StatusGatewayTimeout, e.Message
	case typed && e.Reason == errdefs.Unavailable:
		status, message = http.StatusServiceUnavailable, e.Message
	case errors.As(err, &timeout) && timeout.Timeout():
		status, message = http.StatusGatewayTimeout, fmt.Sprintf("the server on port %d did not begin its answer within %v", t.Port, answerPatience)
	}
	b, err := json.Marshal(struct {
		Sandbox string `json:"sandboxId"`
		Message string `json:"message"`
		Port    int    `json:"port"`
		Code    int    `json:"code"`
	}{t.Sandbox, strings.ToValidUTF8(message, "\uFFFD"), t.Port, status})
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that has gone needs no answer
}
