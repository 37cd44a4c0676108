package dsec

import (
	"bytes"
	"io"
	"net/http"
)

// maxWhole bounds the requests that are sent in one write.
const maxWhole = 64 << 10

// wholeRequests sends a small request's header and body in one write. The standard transport
// writes the header by itself when it does not know that the body is in memory: the server
// then wakes up twice for each call.
type wholeRequests struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w wholeRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > maxWhole {
		return w.next.RoundTrip(r)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxWhole+1))
	_ = r.Body.Close()
	if err != nil {
		return nil, err
	}
	whole := *r
	whole.Body = io.NopCloser(bytes.NewReader(body))
	whole.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return w.next.RoundTrip(&whole)
}

// CloseIdleConnections is what http.Client looks for.
func (w wholeRequests) CloseIdleConnections() {
	if c, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
