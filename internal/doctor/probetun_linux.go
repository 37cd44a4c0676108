package doctor

import (
	"context"

	"github.com/dsec-platform/dsec/internal/egress/link"
)

// tun finds out whether boxes can have a network device.
func (p *prober) tun(context.Context) (string, error) {
	if err := link.Usable(); err != nil {
		return "", err
	}
	return "/dev/net/tun opens: sessions with a network have a device", nil
}
