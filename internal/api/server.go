package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Server is the HTTP server of the gateway, HTTP/1.1 and HTTP/2 without TLS on
// one port. Serve it on any number of listeners, TCP and unix; end it with
// Shutdown. It has no time-outs for whole requests, because streams are long.
func (a *API) Server() *http.Server { return a.server }

func (a *API) newServer() *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           a,
		Protocols:         &p,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       connContext,
		BaseContext:       func(net.Listener) context.Context { return a.base },
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 4096, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// SetReady says that the server takes work: /healthz answers 200 from now on.
func (a *API) SetReady() { a.ready.Store(true) }

// Drain refuses new creates, retryably, and makes /healthz answer 503; what
// runs goes on.
func (a *API) Drain() { a.stopping.Store(true) }

// Shutdown drains, stops listening and waits for running requests until ctx
// ends; then it ends the rest with a retryable unavailable error and waits a
// moment for them to say so. Operations in boxes go on.
func (a *API) Shutdown(ctx context.Context) error {
	a.Drain()
	err := a.server.Shutdown(ctx)
	a.closing.Store(true)
	a.end()
	if err == nil {
		return nil
	}
	last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err = a.server.Shutdown(last); errors.Is(err, context.DeadlineExceeded) {
		err = a.server.Close()
	}
	return err
}
