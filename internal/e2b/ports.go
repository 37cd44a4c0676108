package e2b

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/internal/e2b/ports"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// servePort passes a request on to a server inside the box, WebSockets too. The caller shows one of the
// sandbox's tokens, unless its creator made the ports public.
func (f *Facade) servePort(w http.ResponseWriter, r *http.Request, t *Target) {
	if err := t.authorizePort(r); err != nil {
		WriteError(w, err)
		return
	}
	ports.Serve(w, r, ports.Target{Sandbox: t.ID, Port: t.Port, Shared: r.Header.Get(headerSandbox) != "", Guest: t.Guest})
}

// authorizePort wants the traffic token, or envd's, which opens more.
func (t *Target) authorizePort(r *http.Request) error {
	if t.labels[labelPublic] != "" || t.boxes.opens(r, t.ID, t.Port) {
		return nil
	}
	return errdefs.Policyf(errdefs.Forbidden, "port "+strconv.Itoa(t.Port)+" of sandbox "+t.ID,
		"send the sandbox's trafficAccessToken as "+strings.ToLower(headerTraffic)+", or create it with network.allowPublicTraffic", "it was not found, or its ports are not public")
}
