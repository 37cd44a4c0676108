package web

import (
	"cmp"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// say tells a client in words why its request is not let out. Programs show different parts of an answer to their users:
// the words are in the reason phrase, in the body, and for a client that wants JSON in its member error.
// req is nil where none could be read.
func say(w io.Writer, req *http.Request, no refusal, name, session string) {
	what := "the egress policy refuses this request"
	switch {
	case no.status == http.StatusBadGateway:
		what = cmp.Or(name, "the destination") + " cannot be reached"
	case name != "":
		what += " to " + name
	}
	why := no.reason.Text()
	if no.status == http.StatusBadGateway && no.detail != "" {
		why += ": " + no.detail
	}
	why += " (" + string(no.reason) + ")"
	text := "dsec: " + what + ": " + why
	phrase, remedy := http.StatusText(no.status), ""
	if no.status == http.StatusForbidden {
		phrase = "Refused by the egress policy: "
		if name != "" {
			phrase += name + ": "
		}
		phrase += why
		remedy = "dsec net explain"
		if session != "" {
			remedy += " " + session
		}
		phrase += "; see " + remedy
	}
	kind, body := "text/plain; charset=utf-8", text+"\n"
	if remedy != "" {
		body += "What would allow it says: " + remedy + "\n"
	}
	status := no.status
	switch {
	case req == nil:
	case hidesErrors(req):
		// A status that is no error and no page: the one case in which this program shows something of the answer, its type.
		if status == http.StatusForbidden {
			status = http.StatusMultipleChoices
			kind = "text/plain; refused=" + strconv.Quote(text+"; see "+remedy)
		}
	case wantsJSON(req):
		b, err := json.Marshal(map[string]string{"error": text, "reason": string(no.reason), "remedy": remedy})
		if err == nil {
			kind, body = "application/json", string(b)+"\n"
		}
	}
	if req != nil && req.Method == http.MethodHead {
		body = ""
	}
	var b strings.Builder
	b.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " " + oneLine(phrase) + "\r\n")
	b.WriteString("Content-Type: " + oneLine(kind) + "\r\nCache-Control: no-store\r\nConnection: close\r\nX-Dsec-Reason: " + string(no.reason) + "\r\n")
	b.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	_, _ = io.WriteString(w, b.String())
}

// wantsJSON tells whether a client would rather have JSON: the first type that it accepts is one.
func wantsJSON(req *http.Request) bool {
	first, _, _ := strings.Cut(req.Header.Get("Accept"), ",")
	return strings.Contains(first, "json")
}

// hidesErrors tells the program that looks for packages in a page and tells nobody about errors of it: it says that there are no
// versions.
func hidesErrors(req *http.Request) bool {
	accept := req.Header.Get("Accept") // older ones ask for text/html alone
	return strings.HasPrefix(req.Header.Get("User-Agent"), "pip/") && (accept == "text/html" || strings.Contains(accept, "application/vnd.pypi.simple"))
}

// oneLine keeps a header whole whatever is in it.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

const (
	// toldFor is how long a client may take over being told why.
	toldFor  = 5 * time.Second
	lingerTo = 256 << 10
	lingers  = time.Second
)

// linger takes some of what a client is still sending, so that it reads the answer before it learns that nobody listens.
func linger(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(lingers))
	_, _ = io.CopyN(io.Discard, c, lingerTo)
}
