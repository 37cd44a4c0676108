package node

// State of a session's box, as Inventory tells it.
type State string

const (
	Making     State = "making"     // admitted, not yet bound; never in an Inventory
	Live       State = "live"       // takes ops
	Suspended  State = "suspended"  // frozen; Resume goes on
	Audit      State = "audit"      // its processes were killed: its files are readable, nothing executes
	Destroying State = "destroying" // being reclaimed; Destroy waits for it, and tries again if it failed
	Lost       State = "lost"       // it ended or was destroyed unasked; kept until Destroy, so that its end is not forgotten
)
