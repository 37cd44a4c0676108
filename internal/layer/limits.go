package layer

import "github.com/dsec-platform/dsec/internal/errdefs"

// Limits bound what one layer may hold, whatever its maker claims.
type Limits struct {
	Bytes   int64 // file content, holes counted
	Entries int64
}

// DefaultLimits fit every sane environment and keep a hostile one from filling the node.
var DefaultLimits = Limits{Bytes: 64 << 30, Entries: 4 << 20}

const (
	maxPath  = 4095 // PATH_MAX less its NUL
	maxName  = 255  // NAME_MAX
	maxXattr = 64 << 10
	maxID    = 65535 // boxes map ids 0 … 65535
	nobody   = 65534
)

func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	if l.Entries == 0 {
		l.Entries = DefaultLimits.Entries
	}
	return l
}

func tooLarge(what, format string, args ...any) error {
	e := errdefs.Userf(errdefs.TooLarge, what, "make the environment smaller, or raise the layer limits", format, args...)
	return e
}
