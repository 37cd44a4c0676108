package site

import "github.com/dsec-platform/dsec/internal/errdefs"

// Attach is how boxes get their way out.
type Attach string

// The forms: Auto, which "" is too, is Device wherever one can be made.
const (
	Auto   Attach = "auto"
	Device Attach = "device"
	Proxy  Attach = "proxy"
)

// Proxied tells whether boxes go by an explicit proxy, on a machine where no device can be made for the reason unusable (nil: they
// can).
func (a Attach) Proxied(unusable error) (bool, error) {
	switch a {
	case "", Auto:
		return unusable != nil, nil
	case Proxy:
		return true, nil
	case Device:
		if unusable != nil {
			return false, errdefs.Userf(errdefs.Unsupported, "egress.attach", "give the server /dev/net/tun, or write attach: auto", "boxes can have no device here: %w", unusable)
		}
		return false, nil
	}
	return false, errdefs.Userf(errdefs.InvalidArgument, "egress.attach", "write auto, device or proxy", "%q is none of them", string(a))
}
