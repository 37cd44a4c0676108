package egress

import (
	"context"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// Network gives boxes their way out. All methods are safe for concurrent use.
type Network interface {
	// Attach starts to serve a box. With a policy that is Closed it only remembers the box: the first Switch to
	// one that is not makes the device. On an error nothing is left in the namespace but a
	// device that dies with it.
	Attach(ctx context.Context, a Attachment) (Link, error)
	// Proxy serves a box's policy as an explicit HTTP proxy (CONNECT and absolute requests) on a
	// listener that only the box can reach, for runtimes that have no namespace to give to Attach. The link owns the listener.
	Proxy(ctx context.Context, ln net.Listener, a Attachment) (Link, error)
	// Preflight resolves every plain name of the policy, and with reach connects to its ports.
	// The results are in the order of p.Names; the error says all that failed, by name. What was resolved may go to
	// Attachment.Resolved, so that the box gets the addresses that were tested.
	Preflight(ctx context.Context, p *policy.Policy, reach bool) ([]Preflight, error)
	// Stats sums up all boxes since the start, for metrics.
	Stats() Stats
	// Close lets go of every box. Their devices stay, so that the next daemon can Attach with
	// Resume; meanwhile connections fail at once.
	Close() error
}

// Attachment is a box as the network needs to know it.
type Attachment struct {
	Box Identity
	// Netns opens the box's network namespace. It is called when a device is made, so that a box
	// without a way out pins nothing; the file is closed soon after. Not used by Proxy.
	Netns func() (*os.File, error)
	// Policy is the first one.
	Policy *policy.Policy
	// Proxied asks Attach for an explicit proxy on a port of the box's own loopback (proxy.Address) instead of a
	// device, whatever the policy is: the port must be taken before a program of the box can. Where one has, Attach
	// fails with a Conflict.
	Proxied bool
	// Resume takes over a device that an earlier daemon left, and ends the connections in the namespace that
	// waited for it, so that they fail and do not hang. Without a device it makes one.
	Resume bool
	// Resolved seeds the box's resolver with what a preflight found.
	Resolved []Preflight
	// Trusts says that the box trusts its project's authority (Credentials), so that what it is refused can be
	// explained to its programs: in an HTTP answer inside TLS, and at an address that refused names resolve to.
	// Not used by Proxy, which answers itself.
	Trusts bool
}

// Link is one box's way out. All methods are safe for concurrent use.
type Link interface {
	// Switch puts p in force: when it returns, every connection that p does not allow is cut (the box
	// sees a reset), and new ones are judged by p. What p allows goes on undisturbed. Pins
	// of names that p does not allow are forgotten.
	Switch(ctx context.Context, p *policy.Policy) error
	// Policy is the one in force.
	Policy() *policy.Policy
	// Check says what would happen to a connection of this box now: the policy's judgement, and for an
	// address also the names that are pinned to it. It sends nothing.
	Check(host string, port uint16, transport policy.Protocol) policy.Result
	// Stats counts since the Attach.
	Stats() Stats
	// Close ends every connection and stops serving; with remove the device goes too, for a box
	// that lives on without it. A namespace that ends takes its device along. Idempotent.
	Close(remove bool) error
}

// Identity says whose traffic it is.
type Identity struct {
	Box, Session, Project string
	// Op gives the id of the op that is likely the cause of what happens now, "" when it is not
	// known (none or several run). May be nil. It must not block.
	Op func() string
}

// Cause is what Op gives now.
func (i Identity) Cause() string {
	if i.Op == nil {
		return ""
	}
	return i.Op()
}

// Preflight is what is known of one name before a box starts.
type Preflight struct {
	Name  string        `json:"name"`
	Addrs []netip.Addr  `json:"addrs,omitempty"`
	TTL   time.Duration `json:"ttl,omitempty"`
	// Reached are the ports that took a connection; nil when none was asked for.
	Reached []uint16 `json:"reached,omitempty"`
	// Reason and Message say what failed; empty when all is well.
	Reason  policy.Reason `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
}

// Stats are counters of one box or of all. Open, Pins and Boxes are gauges.
type Stats struct {
	Boxes, Open, Pins                int64
	Allowed, Refused, Limited        int64 // decisions; Limited are those of Refused that a limit caused
	Queries, Sent, Received, Records int64
	Suppressed                       int64 // records that the limit of records left out
}
