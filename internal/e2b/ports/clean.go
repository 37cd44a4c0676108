package ports

import (
	"net/http"
	"strings"
)

// beyond are headers of answers that browsers do not keep to the host that sent them, or keep for longer than
// a box may say: they act on names below it, on its whole site, on other ports of its host, or on
// where its name leads. All boxes share one site.
var beyond = []string{
	"Strict-Transport-Security", "Public-Key-Pins", "Public-Key-Pins-Report-Only", "Expect-Ct", // by host, ports and names below it
	"Alt-Svc", "Alternates", // where the origin is reached
	"Clear-Site-Data",                         // cookies of the whole site among it
	"Nel", "Report-To", "Reporting-Endpoints", // who is told of failures, also below the name
	"Set-Cookie2",                                             // knows domains too
	"Sec-Session-Registration", "Secure-Session-Registration", // a session of the site
}

// origin are headers that act on all of an origin: a box may send them to its own, not to the platform's.
var origin = []string{"Set-Cookie", "Service-Worker-Allowed", "Accept-Ch", "Critical-Ch", "Origin-Agent-Cluster", "Set-Login", "Origin-Trial"}

// clean takes from an answer's headers what would reach beyond the box's own origin.
func (t Target) clean(h http.Header) {
	for _, name := range beyond {
		h.Del(name)
	}
	if t.Shared {
		for _, name := range origin {
			h.Del(name)
		}
		return
	}
	for i, c := range h["Set-Cookie"] {
		h["Set-Cookie"][i] = hostOnly(c)
	}
}

// hostOnly takes the domain out of a cookie, so that a browser sends it to this host alone.
func hostOnly(cookie string) string {
	parts := strings.Split(cookie, ";")
	kept := parts[:1]
	for _, p := range parts[1:] {
		name, _, _ := strings.Cut(p, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "domain") {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ";")
}

// early cleans what a server says before its answer (103), which is passed on as it comes.
type early struct {
	http.ResponseWriter
	t Target
}

func (e *early) WriteHeader(status int) {
	if status < 200 {
		e.t.clean(e.Header())
	}
	e.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (e *early) Unwrap() http.ResponseWriter { return e.ResponseWriter }
