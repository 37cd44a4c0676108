package mcp

import (
	"context"
	"io"
	"log/slog"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/version"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// Options of New.
type Options struct {
	// Dial gives the client for an API key. By standard streams the key is "", and the
	// client is whatever the process that serves was told to use.
	Dial func(key string) (*dsec.Client, error)
	// Session is what every session is made of where the tool call says nothing
	// else; its Spec and SpecYAML are ignored for Spec below.
	Session dsec.CreateOptions
	Spec    spec.Sandbox
	// MaxSessions bounds the live sessions of one connection; 0: 32.
	MaxSessions int
	// Log takes what happens beside the protocol; nil: nothing.
	Log *slog.Logger
}

// Server offers the tools to any number of connections.
type Server struct {
	o Options

	mu    sync.Mutex
	conns map[*sdk.ServerSession]*connection
	ended sync.WaitGroup // connections whose sessions are being stopped
}

// New makes a server. It does not connect to anything.
func New(o Options) *Server {
	if o.MaxSessions == 0 {
		o.MaxSessions = 32
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{o: o, conns: map[*sdk.ServerSession]*connection{}}
}

const instructions = `Isolated Linux boxes. Make one with create; run shell scripts in it with exec; move files with read and write; end it with stop.
A box keeps its files and background processes between calls and has no network unless its policy says otherwise. Boxes end with this connection unless made with keep.
A command that failed is a result with its exit_code, not an error. An error has a class: "user" and "limit" are yours to correct as its remedy says; "infrastructure" is the platform's fault, so try again.`

func (s *Server) protocol(versions []string) *sdk.Server {
	p := sdk.NewServer(&sdk.Implementation{Name: "dsec", Title: "DSec boxes", Version: version.Version}, &sdk.ServerOptions{
		Instructions:              instructions,
		Logger:                    s.o.Log,
		Capabilities:              &sdk.ServerCapabilities{},
		SupportedProtocolVersions: versions,
	})
	p.AddReceivingMiddleware(typed)
	s.addTools(p)
	return p
}

// ServeStreams serves one connection, line by line, until its input or ctx ends,
// and returns when what it made is gone.
func (s *Server) ServeStreams(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	eof := &endReader{in, cancel}
	ss, err := s.protocol(nil).Connect(ctx, &sdk.IOTransport{Reader: io.NopCloser(eof), Writer: keepOpen{out}}, nil)
	if err != nil {
		return err
	}
	c, err := s.connection(ss, "")
	if err != nil {
		return err
	}
	<-ctx.Done()
	c.end() // first: the protocol's own end waits for calls that run
	s.ended.Wait()
	_ = ss.Close() // the peer has gone
	return nil
}

// endReader tells when the input has ended, at which calls that run are no use any more.
type endReader struct {
	io.Reader
	end func()
}

func (r *endReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil {
		r.end()
	}
	return n, err
}

// keepOpen leaves the stream to its owner.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// connection gives the state of a protocol session; it begins with the first call.
func (s *Server) connection(ss *sdk.ServerSession, key string) (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[ss]; c != nil {
		return c, nil
	}
	client, err := s.o.Dial(key)
	if err != nil {
		return nil, err
	}
	c := newConnection(client, s.o.MaxSessions)
	s.conns[ss] = c
	s.ended.Go(func() {
		s.watch(ss, c)
		s.mu.Lock()
		delete(s.conns, ss)
		s.mu.Unlock()
	})
	return c, nil
}

// watch ends a connection's sessions when the connection has ended.
func (s *Server) watch(ss *sdk.ServerSession, c *connection) {
	over := make(chan struct{})
	go func() {
		_ = ss.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-c.ctx.Done():
	}
	if err := c.stopAll(); err != nil {
		s.o.Log.Warn("sessions of an ended connection were not stopped", "err", err)
	}
}
