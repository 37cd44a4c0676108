package seccomp

import (
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// profileCalls gives the calls of a profile, a fresh slice.
func profileCalls(profile string) ([]string, error) {
	calls := strings.Fields(defaultCalls)
	switch profile {
	// The network profile differs in its socket rule only.
	case "", Default, Alias, "network":
	case "build":
		calls = append(calls, strings.Fields(buildCalls)...)
	case "debug":
		calls = append(calls, strings.Fields(debugCalls)...)
	default:
		return nil, errdefs.Userf(errdefs.InvalidArgument, "field seccomp.profile", "use one of "+strings.Join(slices.Sorted(slices.Values(append(Profiles(), Alias))), ", "),
			"unknown seccomp profile %q", profile)
	}
	return calls, nil
}

// defaultCalls are what programs need that compute, handle files, make processes
// and talk over unix and loopback sockets: shells, compilers, language run times, package
// managers as the box's root. Calls of rules.go are judged by their arguments. Missing on
// purpose is native AIO (io_setup): fs.aio-max-nr is one number for the machine, one call
// uses all of it up, and databases go on without; allow_extra grants it.
const defaultCalls = `
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile
open openat openat2 creat close close_range dup dup2 dup3 fcntl ioctl flock
stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
statfs fstatfs getdents getdents64 getcwd chdir fchdir chroot umask
mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat mknod mknodat
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
truncate ftruncate fallocate fadvise64 readahead copy_file_range splice tee vmsplice cachestat
fsync fdatasync syncfs sync sync_file_range file_getattr
getxattr lgetxattr fgetxattr getxattrat setxattr lsetxattr fsetxattr setxattrat
listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat
inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
pipe pipe2 select pselect6 poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime memfd_create

brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 munlock mlockall munlockall
remap_file_pages pkey_alloc pkey_free pkey_mprotect mseal map_shadow_stack membarrier get_mempolicy

clone clone3 fork vfork execve execveat exit exit_group wait4 waitid
getpid getppid gettid getpgid getpgrp setpgid getsid setsid kill tkill tgkill pidfd_open pidfd_send_signal
prctl arch_prctl set_tid_address set_thread_area get_thread_area set_robust_list get_robust_list rseq rseq_slice_yield
futex futex_waitv futex_wake futex_wait futex_requeue restart_syscall unshare personality seccomp
landlock_create_ruleset landlock_add_rule landlock_restrict_self
getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
setresuid setresgid setfsuid setfsgid setgroups capget capset
getrlimit setrlimit prlimit64 getrusage times sysinfo uname getcpu getrandom
getpriority setpriority ioprio_get ioprio_set sched_yield sched_getaffinity sched_setaffinity
sched_getparam sched_setparam sched_getscheduler sched_setscheduler sched_get_priority_max
sched_get_priority_min sched_rr_get_interval sched_getattr sched_setattr

rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait
rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack pause alarm getitimer setitimer nanosleep clock_nanosleep
time gettimeofday clock_gettime clock_getres timer_create timer_settime timer_gettime timer_getoverrun timer_delete

socket socketpair bind listen accept accept4 connect shutdown getsockname getpeername
getsockopt setsockopt sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
semget semop semtimedop semctl shmget shmat shmdt shmctl msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
`

// buildCalls: build tools that watch trees, and numeric programs that place memory.
const buildCalls = `
fanotify_init fanotify_mark name_to_handle_at set_mempolicy set_mempolicy_home_node mbind move_pages
process_madvise memfd_secret
`

// debugCalls: debuggers and tracers, between processes of one user of the box. PID 1
// cannot be traced (it is not dumpable, and CAP_SYS_PTRACE is in no bounding set).
const debugCalls = `
ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise
`
