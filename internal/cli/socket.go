package cli

import (
	"context"
	"net"
	"time"
)

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Second}
	return d.DialContext(ctx, "unix", path)
}
