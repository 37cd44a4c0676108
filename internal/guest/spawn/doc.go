// Package spawn starts a process of the agent. Between fork and exec the child
// must join cgroups, take a controlling terminal, set limits, give up capabilities
// and ids, and install a seccomp filter: more than os/exec offers. So the parent
// compiles the steps into a list of system calls, and the child, which shares the
// parent's memory (CLONE_VM|CLONE_VFORK: nothing is copied, however large the
// guest has grown), works the list off in a few lines of assembly that touch
// neither stack nor Go runtime.
//
// The child carries the agent's uid in the guest's address space for some
// microseconds. That is safe because the guest is non-dumpable, which no
// same-uid process gets past, and because all signals are blocked or have their
// default action there. A child that the agent stops in that window holds up its own
// Start, and by a launcher all of the guest for half a millisecond: from then on the Go scheduler regards the thread as
// being in a system call.
package spawn
