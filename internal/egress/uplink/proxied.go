package uplink

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/link"
	"github.com/dsec-platform/dsec/internal/egress/proxy"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// attachProxy serves the box on its own loopback. A listener that an earlier daemon had ended with it, and what was connected to it.
func (n *Network) attachProxy(ctx context.Context, a egress.Attachment) (egress.Link, error) {
	ln, err := listen(&a)
	if err != nil {
		return nil, err
	}
	return n.Proxy(ctx, ln, a)
}

func listen(a *egress.Attachment) (net.Listener, error) {
	ns, err := a.Netns()
	if err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeBox, errdefs.Internal, "box "+a.Box.Box, "open its network namespace: %w", err)
	}
	defer ns.Close()
	ln, err := link.Listen(ns, proxy.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, errdefs.Userf(errdefs.Conflict, "network of session "+a.Box.Session, "end the program that listens there and switch the network, or make a new session",
			"a program of the box has taken %s, where its egress proxy has to listen", proxy.Address)
	case err != nil:
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+a.Box.Box, "listen for its egress proxy: %w", err)
	}
	return ln, nil
}
