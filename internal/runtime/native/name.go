package native

// CgroupName is the name of the group that all boxes of a data directory are
// below, in every cgroup hierarchy that is used.
func CgroupName(dataDir string) string { return rootName(dataDir) }
