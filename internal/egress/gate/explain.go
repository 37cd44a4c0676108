package gate

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/egress/dns"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// explainedPorts are those at which a client speaks first, and HTTP; others are refused at the first packet, as everywhere.
var explainedPorts = []uint16{80, 443, 8080, 8443}

// pagesPerSecond bounds the TLS handshakes that a box may cost the node to be told why, nodePagesPerSecond those of all boxes
// together; over it there is a reset. A handshake takes about half a millisecond of a processor.
const (
	pagesPerSecond     = 20
	nodePagesPerSecond = 200
)

// explainer tells whether a destination is where this box is told why.
func (g *Gate) explainer(to netip.AddrPort) bool {
	return g.explains && to.Addr() == policy.Explainer && slices.Contains(explainedPorts, to.Port())
}

// Explains tells whether a TLS client of this box may be told why now, and charges the box for it.
func (g *Gate) Explains() bool { return g.explains && g.pages.Take(1) && g.Node.pages.Take(1) }

// why says why a name is refused at the explainer.
func (g *Gate) why(name string, port uint16, otherwise policy.Reason) policy.Reason {
	folded, ok := policy.Fold(name)
	if !ok {
		return otherwise
	}
	if m := g.Policy().Host(folded, port, policy.TCP); !m.OK {
		return m.Reason
	}
	return policy.NameUnpinned // it is allowed by now: the client holds an old answer
}

// refusedName answers a question for a name that the policy does not name. Nobody outside is asked. Where the box can be
// told why, the name leads there; a name that no policy could allow, or that is not a domain's, does not exist.
func (g *Gate) refusedName(q dns.Query, name string, why policy.Reason) []byte {
	i := strings.LastIndexByte(name, '.')
	switch {
	case !g.explains, why != policy.NameNotAllowed && why != policy.PolicyDenies, i < 0, slices.Contains(special, name[i+1:]):
		return q.NoName()
	case q.WantsAddrs():
		// Kept by nobody: the next policy may allow it.
		return q.Answer([]netip.Addr{policy.Explainer}, 0)
	}
	return q.NoData()
}

// special are top-level names under which nothing on the internet is found; programs rely on it.
var special = []string{"localhost", "local", "invalid", "arpa", "onion", "alt"}
