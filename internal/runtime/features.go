package runtime

import "strings"

// Features that Probe answers for, whatever the runtime: "no" or "no: reason" when boxes made
// here lack it, any other text says how it is done. A runtime may name more of its own.
const (
	FeatureFreeze    = "freeze"        // Freeze stops processes, Thaw lets them go on
	FeatureKillAgent = "kill-agent"    // KillAgent reaches every process of the agent
	FeatureMemory    = "limit-memory"  // Limits.Memory holds
	FeaturePids      = "limit-pids"    // Limits.Pids holds
	FeatureUsers     = "users"         // ops run as the user that was asked for
	FeatureRoot      = "root"          // the box sees Root as its file system, read-only unless RootWritable
	FeatureDirs      = "writable-dirs" // Claim.WritableDirs, StoreSize and TmpSize hold
	FeatureUsage     = "usage"         // Usage reads real counters
)

// Features is the list that every Probe has to answer.
var Features = []string{
	FeatureFreeze, FeatureKillAgent, FeatureMemory, FeaturePids, FeatureUsers, FeatureRoot, FeatureDirs, FeatureUsage,
}

// Has tells whether boxes made here have the feature.
func (p *Probe) Has(feature string) bool {
	how, ok := p.Features[feature]
	return ok && how != "no" && !strings.HasPrefix(how, "no:")
}
