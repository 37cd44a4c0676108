package seccomp

// Actions: seccomp(2)'s SECCOMP_RET_* values.
const (
	actKill   uint32 = 0x80000000 // the whole process
	actAllow  uint32 = 0x7fff0000
	actErrno  uint32 = 0x00050000 // | errno; errno 0 answers success without running the call
	actEPERM         = actErrno | 1
	actENOENT        = actErrno | 2
	actENOSYS        = actErrno | 38
	// What the kernel says of address families and protocols that it was built without.
	actEPROTONOSUPPORT = actErrno | 93
	actEAFNOSUPPORT    = actErrno | 97
)

// rule judges one system call: the first clause whose tests all hold decides,
// else action does.
type rule struct {
	clauses []clause
	action  uint32
}

type clause struct {
	tests  []test
	action uint32
}

// test holds when word & mask == value. The kernel truncates int arguments, so
// only the low half of one counts: a filter that compared all 64 bits
// would be passed by setting a high one.
type test struct {
	arg   int
	high  bool // the upper half, for arguments that the kernel takes as long
	mask  uint32
	value uint32
}

func (t test) sameWord(o test) bool {
	return t.arg == o.arg && t.high == o.high && t.mask == o.mask
}

func (t test) offset() uint32 {
	off := uint32(offArgs + 8*t.arg)
	if t.high {
		off += 4
	}
	return off
}

func is(arg int, value uint32) test           { return test{arg: arg, mask: ^uint32(0), value: value} }
func masked(arg int, mask, value uint32) test { return test{arg: arg, mask: mask, value: value} }

var (
	ruleAllowed = &rule{action: actAllow}
	ruleRefused = &rule{action: actEPERM}
	ruleUnknown = &rule{action: actENOSYS}
)

// newNamespaces are the CLONE_NEW* flags that clone(2) knows. CLONE_NEWTIME shares
// its bit with the exit signal there and is refused by the kernel.
const newNamespaces = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

// rules are the exceptions of a profile: calls whose arguments, or whose
// answer, matter. They hold for every profile and cannot be lifted by allow_extra.
func rules(profile string) map[string]*rule {
	r := map[string]*rule{
		// Its flags lie in memory that a filter cannot read; libraries fall back to clone.
		"clone3": {action: actENOSYS},
		// No new namespaces: each is a fresh set of capabilities over much kernel code.
		"clone": {clauses: []clause{{[]test{masked(0, newNamespaces, 0)}, actAllow}}, action: actEPERM},
		// CLONE_FS, CLONE_FILES and CLONE_SYSVSEM only undo sharing between threads; every other flag is refused, also those to come.
		"unshare": {clauses: []clause{{[]test{masked(0, ^uint32(0x200|0x400|0x40000), 0), {arg: 0, high: true, mask: ^uint32(0)}}, actAllow}}, action: actEPERM},
		// PER_LINUX, ADDR_NO_RANDOMIZE (debuggers, sanitizers) and the query; other personalities reach old, little tested code.
		"personality": {clauses: []clause{
			{[]test{is(0, 0)}, actAllow},
			{[]test{is(0, 0x0040000)}, actAllow},
			{[]test{is(0, 0xffffffff)}, actAllow},
		}, action: actEPERM},
		// Only on self: the box's root could lift the limits of other users' processes.
		"prlimit64": {clauses: []clause{{[]test{is(0, 0)}, actAllow}}, action: actEPERM},
		// A flush of all file systems of the machine, or of a whole one that a host's view or a quota
		// store shares; one box must not stall the others' disks. What a box writes dies with
		// it and its root is volatile, so a lie changes nothing for it: fsync is the way.
		"sync":   {action: actErrno},
		"syncfs": {action: actErrno},
		"ioctl":  ioctlRule,
		// Device nodes. The kernel refuses them too, except 0:0, which is a whiteout to the overlay of a later fork.
		"mknod":   deviceRule(1),
		"mknodat": deviceRule(2),
		"socket":  socketRule(profile),
		// As socket: families beside unix autoload modules.
		"socketpair": {clauses: []clause{{[]test{is(0, 1)}, actAllow}}, action: actEAFNOSUPPORT},
		// SOL_TCP, TCP_ULP: attaches protocol modules (TLS, MPTCP) under a socket. ENOENT is the kernel's own "no such module".
		"setsockopt": {clauses: []clause{{[]test{is(1, 6), is(2, 31)}, actENOENT}}, action: actAllow},
	}
	return r
}

// ioctlRule refuses single commands: the set that programs need is open, and drivers
// that boxes can reach are few (tty, sockets, the file systems).
var ioctlRule = func() *rule {
	r := &rule{action: actAllow}
	for _, cmd := range []uint32{
		0x5412,     // TIOCSTI: types into another process's terminal
		0x541C,     // TIOCLINUX: the same by the console's selection
		0x541D,     // TIOCCONS: steals the console
		0x5423,     // TIOCSETD: autoloads line disciplines
		0xc028660f, // EXT4_IOC_MOVE_EXT: swaps extents between files
		0x6611,     // EXT4_IOC_SWAP_BOOT
		0x401c5820, // FS_IOC_FSSETXATTR: would leave the project quota of the box's store
		0x800c6613, // FS_IOC_SET_ENCRYPTION_POLICY: files that a snapshot cannot read
		0xc0506617, // FS_IOC_ADD_ENCRYPTION_KEY: the kernel's key rings by another door
	} {
		r.clauses = append(r.clauses, clause{[]test{is(1, cmd)}, actEPERM})
	}
	for _, cmd := range []uint32{
		0x586d, // XFS_IOC_SWAPEXT, any size of its argument
		0x5881, // XFS_IOC_EXCHANGE_RANGE
		0x5883, // XFS_IOC_COMMIT_RANGE
	} {
		r.clauses = append(r.clauses, clause{[]test{masked(1, 0xffff, cmd)}, actEPERM})
	}
	return r
}()

func deviceRule(modeArg int) *rule {
	return &rule{clauses: []clause{
		{[]test{masked(modeArg, 0o170000, 0o020000)}, actEPERM},
		{[]test{masked(modeArg, 0o170000, 0o060000)}, actEPERM},
	}, action: actAllow}
}

// socketRule allows unix, TCP and UDP sockets and routing netlink. What is refused
// answers as a kernel built without it: useradd and su, for one, go
// on without NETLINK_AUDIT when it is not supported, and give up on EPERM.
func socketRule(profile string) *rule {
	const (
		unix, netlink, inet = 1, 16, 2
		inetMask            = ^uint32(8) // AF_INET is 2, AF_INET6 10
		typeMask            = 0xf        // the rest are SOCK_NONBLOCK and SOCK_CLOEXEC
		stream, dgram       = 1, 2
	)
	ip := func(kind, proto uint32) clause {
		return clause{[]test{masked(0, inetMask, inet), masked(1, typeMask, kind), is(2, proto)}, actAllow}
	}
	clauses := []clause{
		{[]test{is(0, unix)}, actAllow},
		ip(stream, 0), ip(stream, 6), ip(dgram, 0), ip(dgram, 17),
		// NETLINK_ROUTE: getifaddrs and getaddrinfo list the interfaces with it.
		{[]test{is(0, netlink), is(2, 0)}, actAllow},
	}
	if profile == "network" {
		// ICMP echo by datagram sockets, as ping uses them without raw ones.
		clauses = append(clauses, ip(dgram, 1), ip(dgram, 58))
	}
	return &rule{clauses: append(clauses,
		clause{[]test{masked(0, inetMask, inet), masked(1, typeMask, 3)}, actEPERM}, // raw: needs CAP_NET_RAW anyway
		clause{[]test{masked(0, inetMask, inet)}, actEPROTONOSUPPORT},
		clause{[]test{is(0, netlink)}, actEPROTONOSUPPORT},
	), action: actEAFNOSUPPORT}
}
