package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// idle is how long a connection by HTTP may be silent before it counts as ended.
const idle = 30 * time.Minute

// Serve serves connections by streamable HTTP until ctx ends, and returns when
// what they made is gone. Every request carries an API key of DSec as its bearer
// token; a connection's first one opens its project, and others are refused.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.mu.Lock()
		for _, c := range s.conns {
			c.end()
		}
		s.mu.Unlock()
		_ = h.Close()
	})()
	err := h.Serve(l)
	if ctx.Err() == nil {
		return err
	}
	<-stopped
	s.ended.Wait()
	return nil
}

func (s *Server) handler() http.Handler {
	// Later versions of the protocol have no connections by HTTP, so that nothing would
	// tell when a client has gone.
	connected := slices.DeleteFunc(sdk.SupportedProtocolVersions(), func(v string) bool { return v >= "2026" })
	p := s.protocol(connected)
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return p }, &sdk.StreamableHTTPOptions{
		Logger: s.o.Log, SessionTimeout: idle, MaxRequestBodyBytes: 8 << 20,
	})
	authenticated := auth.RequireBearerToken(s.verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(h)
	return http.NewCrossOriginProtection().Handler(authenticated)
}

// verify asks DSec whether it takes the key.
func (s *Server) verify(ctx context.Context, key string, r *http.Request) (*auth.TokenInfo, error) {
	sum := sha256.Sum256([]byte(key))
	info := &auth.TokenInfo{UserID: hex.EncodeToString(sum[:]), Extra: map[string]any{"key": key}}
	if r.Header.Get("Mcp-Session-Id") != "" { // the transport compares it with the one that began the session
		return info, nil
	}
	c, err := s.o.Dial(key)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, err := range c.List(ctx, dsec.ListOptions{PageSize: 1}) {
		if err != nil {
			if f := faultOf(err); f.Reason == "unauthenticated" {
				return nil, errors.Join(auth.ErrInvalidToken, err)
			}
			return nil, err
		}
		break
	}
	return info, nil
}

// keyOf is the API key of a call by HTTP; "" by standard streams.
func keyOf(req *sdk.CallToolRequest) string {
	if req.Extra == nil || req.Extra.TokenInfo == nil {
		return ""
	}
	key, _ := req.Extra.TokenInfo.Extra["key"].(string)
	return key
}
