package server

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// An address that is given back in a moment is waited for; one that stays taken is an error.
func TestListenWaitsForTheAddress(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := other.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := listen(ctx, address); !errors.Is(err, context.Canceled) {
		t.Errorf("ended while it waits: %v", err)
	}
	if _, err := listen(t.Context(), address); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("taken for good: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { other.Close() })
	l, err := listen(t.Context(), address)
	if err != nil {
		t.Fatalf("given back: %v", err)
	}
	l.Close()
}
