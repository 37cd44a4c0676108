package setup

// Settings are what operations start from. A value is immutable; a claim
// replaces it whole.
type Settings struct {
	Env           []string // base environment of ops, "K=V"
	User          string   // default user of ops: a name in the box's passwd or a number
	Hostname      string
	NewPrivileges bool   // no_new_privs is lifted
	Seccomp       []byte // raw filter for every agent process; empty: none
	// Rlimits of agent processes; 0: the guest's default.
	NoFile, FSize, Stack uint64
	WritableDirs         []string
	// AgentTasks are descriptors of cgroup v1 `tasks` files: a new agent process
	// writes "0" to each before it executes anything. Empty under pure cgroup v2.
	AgentTasks []int
	// AgentCgroup is a descriptor of the agent's cgroup2 directory. Leaves per
	// op are made below it (mkdirat) and forked into (CLONE_INTO_CGROUP). -1: none.
	AgentCgroup int
	// AgentMemory is the agent's memory.oom_control (v1) or memory.events (v2),
	// AgentPids its pids.events; -1: none.
	AgentMemory, AgentPids int

	// mounts are the paths of what is attached directly to the root, but for WritableDirs.
	mounts []string
}
