package specwire

import (
	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/spec"
)

// FromNetwork is ToNetwork's inverse.
func FromNetwork(w *dsecv1.Network) spec.Network {
	n := spec.Network{
		EgressPolicy: w.GetEgressPolicy(), AllowedDomains: w.GetAllowedDomains(), AllowedIPs: w.GetAllowedIps(), Bundles: w.GetBundles(),
		Limits: fromLimits(w.GetLimits()), Phase: w.GetPhase(), Preflight: w.GetPreflight(),
	}
	for name, p := range w.GetPhases() {
		if n.Phases == nil {
			n.Phases = make(map[string]spec.NetworkPhase, len(w.GetPhases()))
		}
		n.Phases[name] = spec.NetworkPhase{
			EgressPolicy: p.GetEgressPolicy(), AllowedDomains: p.GetAllowedDomains(), AllowedIPs: p.GetAllowedIps(), Bundles: p.GetBundles(), Limits: fromLimits(p.GetLimits()),
		}
	}
	return n
}

// ToNetwork gives the message. Unsaid fields stay unset.
func ToNetwork(n *spec.Network) *dsecv1.Network {
	w := &dsecv1.Network{
		EgressPolicy: n.EgressPolicy, AllowedDomains: n.AllowedDomains, AllowedIps: n.AllowedIPs, Bundles: n.Bundles,
		Limits: toLimits(n.Limits), Phase: n.Phase, Preflight: n.Preflight,
	}
	for name, p := range n.Phases {
		if w.Phases == nil {
			w.Phases = make(map[string]*dsecv1.NetworkPhase, len(n.Phases))
		}
		w.Phases[name] = &dsecv1.NetworkPhase{EgressPolicy: p.EgressPolicy, AllowedDomains: p.AllowedDomains, AllowedIps: p.AllowedIPs, Bundles: p.Bundles, Limits: toLimits(p.Limits)}
	}
	return w
}

func fromLimits(w *dsecv1.NetworkLimits) spec.NetworkLimits {
	return spec.NetworkLimits{
		Bandwidth: spec.Bytes(w.GetBandwidth()), Bytes: spec.Bytes(w.GetBytes()), Connections: int(w.GetConnections()), ConnectsPerSecond: int(w.GetConnectsPerSecond()),
		DNSPerSecond: int(w.GetDnsPerSecond()), DNSNamesPerMinute: int(w.GetDnsNamesPerMinute()), AuditPerSecond: int(w.GetAuditPerSecond()), RefusalsPerSecond: int(w.GetRefusalsPerSecond()),
	}
}

func toLimits(l spec.NetworkLimits) *dsecv1.NetworkLimits {
	if l == (spec.NetworkLimits{}) {
		return nil
	}
	return &dsecv1.NetworkLimits{
		Bandwidth: int64(l.Bandwidth), Bytes: int64(l.Bytes), Connections: int32(l.Connections), ConnectsPerSecond: int32(l.ConnectsPerSecond),
		DnsPerSecond: int32(l.DNSPerSecond), DnsNamesPerMinute: int32(l.DNSNamesPerMinute), AuditPerSecond: int32(l.AuditPerSecond), RefusalsPerSecond: int32(l.RefusalsPerSecond),
	}
}
