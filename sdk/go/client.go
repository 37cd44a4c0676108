package dsec

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
)

// DefaultSocket is where a server of this machine's root listens when nothing else is said.
const DefaultSocket = "/var/lib/dsec/dsec.sock"

// Options of New. The zero value reads the environment: DSEC_URL (http, https,
// or unix:///path) and DSEC_API_KEY, and falls back to DefaultSocket.
type Options struct {
	// URL of the server: "http://host:port", "https://…" or "unix:///path/dsec.sock".
	URL string
	// APIKey of a project. On the unix socket root needs none.
	APIKey string
	// Project to act in, for root on the unix socket; empty: "default".
	Project string
	// RetryFor bounds how long a safe call is repeated while the server cannot be
	// reached or says that it will take it later; zero: 10 s, negative: never.
	RetryFor time.Duration
	// Transport replaces the client's own pooled HTTP/1.1 transport.
	Transport http.RoundTripper
}

// Client talks to one server. It is safe for concurrent use by thousands of
// goroutines; connections are kept and reused.
type Client struct {
	// The services of the wire, for what the methods of Client and Session do not
	// cover. Their errors are converted with AsError.
	Sessions  dsecv1connect.SessionServiceClient
	Leases    dsecv1connect.LeaseServiceClient
	Execs     dsecv1connect.ExecServiceClient
	Files     dsecv1connect.FileServiceClient
	Templates dsecv1connect.TemplateServiceClient
	Nodes     dsecv1connect.NodeServiceClient
	Keys      dsecv1connect.KeyServiceClient
	Networks  dsecv1connect.NetworkServiceClient

	base     string // scheme://host, without a trailing slash
	header   http.Header
	http     *http.Client
	dial     func(ctx context.Context) (net.Conn, error)
	retryFor time.Duration
}

// maxMessage bounds an answer: two streams of the largest kept output, in JSON.
const maxMessage = 256 << 20

// New makes a client. It does not connect.
func New(o Options) (*Client, error) {
	raw := cmp.Or(o.URL, os.Getenv("DSEC_URL"), "unix://"+DefaultSocket)
	u, err := url.Parse(raw)
	if err != nil {
		return nil, invalid("url "+raw, "write it as http://host:port or unix:///path", "is not a URL")
	}
	c := &Client{retryFor: o.RetryFor, header: http.Header{}}
	if c.retryFor == 0 {
		c.retryFor = 10 * time.Second
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	var dial func(ctx context.Context, network, addr string) (net.Conn, error)
	switch u.Scheme {
	case "unix":
		path := u.Path
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
		c.base = "http://dsec"
	case "http", "https":
		if u.Host == "" {
			return nil, invalid("url "+raw, "write it as http://host:port", "names no host")
		}
		dial = dialer.DialContext
		c.base = u.Scheme + "://" + u.Host + strings.TrimRight(u.Path, "/")
	default:
		return nil, invalid("url "+raw, "write it as http://host:port or unix:///path", "has an unknown scheme")
	}
	c.dial = func(ctx context.Context) (net.Conn, error) { return dialServer(ctx, u, dial) }
	if key := cmp.Or(o.APIKey, os.Getenv("DSEC_API_KEY")); key != "" {
		c.header.Set("Authorization", "Bearer "+key)
	}
	if o.Project != "" {
		c.header.Set("Dsec-Project", o.Project)
	}
	transport := o.Transport
	if transport == nil {
		// HTTP/1.1 with many kept connections answers a small call in half the time
		// that HTTP/2 takes, and has no limit on streams.
		transport = &http.Transport{
			DialContext:         dial,
			MaxIdleConnsPerHost: 4096,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
			DisableCompression:  true,
			WriteBufferSize:     16 << 10,
			ReadBufferSize:      16 << 10,
		}
	}
	c.http = &http.Client{Transport: wholeRequests{transport}}
	rpc := connect.NewClient(connecthttp.NewTransport(c.http, c.base,
		connecthttp.WithReadMaxBytes(maxMessage), connecthttp.WithCompressors()), c.authenticate)
	c.Sessions = dsecv1connect.NewSessionServiceClient(rpc)
	c.Leases = dsecv1connect.NewLeaseServiceClient(rpc)
	c.Execs = dsecv1connect.NewExecServiceClient(rpc)
	c.Files = dsecv1connect.NewFileServiceClient(rpc)
	c.Templates = dsecv1connect.NewTemplateServiceClient(rpc)
	c.Nodes = dsecv1connect.NewNodeServiceClient(rpc)
	c.Keys = dsecv1connect.NewKeyServiceClient(rpc)
	c.Networks = dsecv1connect.NewNetworkServiceClient(rpc)
	return c, nil
}

// authenticate adds the client's headers to every call.
func (c *Client) authenticate(next connect.ClientFunc) connect.ClientFunc {
	return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
		if info, ok := connect.CallInfoForClientContext(ctx); ok {
			for k, v := range c.header {
				info.RequestHeader().SetValues(k, v)
			}
		}
		return next(ctx, spec)
	}
}

// Close gives back idle connections. Calls that run go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Healthy tells whether the server takes work; the error says why not.
func (c *Client) Healthy(ctx context.Context) error {
	req, err := c.request(ctx, http.MethodGet, "/healthz", nil, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return AsError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return responseError(resp)
	}
	return nil
}

func invalid(object, remedy, message string) *Error {
	return &Error{Class: ClassUser, Reason: "invalid_argument", Scope: "platform", Object: object, Message: message, Remedy: remedy}
}
