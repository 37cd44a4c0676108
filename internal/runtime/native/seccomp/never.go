package seccomp

// never has the calls that no profile and no allow_extra grants, with the reason.
var never = invert(map[string][]string{
	"it changes what is mounted, and the box's file system is its wall": {
		"mount", "umount2", "pivot_root", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount",
		"open_tree", "open_tree_attr", "mount_setattr"},
	"it loads code into the kernel": {
		"bpf", "init_module", "finit_module", "delete_module", "create_module", "query_module",
		"get_kernel_syms", "kexec_load", "kexec_file_load"},
	"it observes the whole machine": {"perf_event_open", "syslog", "lookup_dcookie"},
	"its operations pass by this filter": {
		"io_uring_setup", "io_uring_enter", "io_uring_register"},
	"its flags cannot be seen by a filter and could make namespaces": {"clone3"},
	"it enters namespaces": {"setns"},
	"it lets a process stall the kernel in the middle of a memory access":     {"userfaultfd"},
	"the kernel's key rings are not separated by box":                         {"keyctl", "add_key", "request_key"},
	"it opens files by number, past every directory":                          {"open_by_handle_at"},
	"it acts on the whole machine":                                            {"reboot", "swapon", "swapoff", "acct", "vhangup", "nfsservctl", "_sysctl", "sysfs", "ustat"},
	"it changes or bypasses the disk quotas that bound the box":               {"quotactl", "quotactl_fd", "file_setattr"},
	"it changes the machine's clock (its read-only use cannot be told apart)": {"settimeofday", "clock_settime", "adjtimex", "clock_adjtime"},
	"it gives access to hardware ports":                                       {"iopl", "ioperm"},
	"it reaches old code that no program needs":                               {"uselib", "modify_ldt"},
})

// Never gives the calls that are never granted, with the reason of each.
func Never() map[string]string {
	m := make(map[string]string, len(never))
	for name, why := range never {
		m[name] = why
	}
	return m
}

func invert(groups map[string][]string) map[string]string {
	m := make(map[string]string)
	for why, names := range groups {
		for _, n := range names {
			m[n] = why
		}
	}
	return m
}
