package e2b

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/gen/process/processconnect"
	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/session"
)

// prefixes of the control and the template API. None is a path of the product's own API.
var prefixes = []string{"/sandboxes", "/v2/sandboxes", "/templates", "/v2/templates", "/v3/templates", "/snapshots", "/volumes", "/volumecontent", "/secrets", "/teams"}

// Route tells what r is to the facade. A request to a box is recognised first, because its path is the box's affair.
func (f *Facade) Route(r *http.Request) api.FacadeRoute {
	if _, port, ok := boxAddress(r); ok {
		switch {
		case port != EnvdPort:
			return api.FacadeRoute{Mine: true, Proxied: true}
		case r.URL.Path == "/files":
			return api.FacadeRoute{Mine: true, Streamed: true}
		case r.URL.Path == processconnect.ProcessStreamInputProcedure: // input may pause as long as a server in the box
			return api.FacadeRoute{Mine: true, Proxied: true, Message: MaxInput}
		}
		return api.FacadeRoute{Mine: true, Message: MaxMessage}
	}
	if r.URL.Path == "/health" {
		return api.FacadeRoute{Mine: true}
	}
	p := prefixOf(r.URL.Path)
	if p == "" {
		return api.FacadeRoute{}
	}
	// An upload for a template's build has a signed address instead of a key, a volume has tokens of its
	// own: whoever has one shall hear that there are no volumes.
	upload := r.Method == http.MethodPut && p == "/templates"
	return api.FacadeRoute{Mine: true, Keyed: p != "/volumecontent" && !upload, Streamed: upload, MakesBoxes: r.Method == http.MethodPost && r.URL.Path == p && strings.HasSuffix(p, "/sandboxes")}
}

// prefixOf gives the prefix that makes a path one of the control or the template API; empty if there is none.
func prefixOf(path string) string {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/') {
			return p
		}
	}
	return ""
}

// boxAddress reads which box, and which port of it, a request is for: by its headers, by its
// token (addressByToken), or by a host name that begins with <port>-<id>. An id that cannot be one is an address all the same,
// when the header has it: the caller must not fall through to another API.
func boxAddress(r *http.Request) (id string, port int, ok bool) {
	if id := r.Header.Get(headerSandbox); id != "" {
		port := EnvdPort
		if p := r.Header.Get(headerPort); p != "" {
			port = parsePort(p)
		}
		// SDKs of a year ago name the sandbox also when they mean the control API, which its agent does not have.
		if port == EnvdPort && prefixOf(r.URL.Path) != "" {
			return "", 0, false
		}
		return id, port, true
	}
	if id, ok := addressByToken(r); ok {
		return id, EnvdPort, true
	}
	label, _, _ := strings.Cut(r.Host, ".")
	p, id, found := strings.Cut(label, "-")
	if !found || !session.ValidID(id) {
		return "", 0, false
	}
	if port = parsePort(p); port == 0 {
		return "", 0, false
	}
	return id, port, true
}

// parsePort gives 0 for what is no port.
func parsePort(s string) int {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s[0] == '+' {
		return 0
	}
	return int(n)
}
