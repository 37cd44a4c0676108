package guest

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/spawn"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

func userError(reason, object, message, remedy string) *guestproto.WireError {
	return &guestproto.WireError{Class: "user", Reason: reason, Object: object, Message: message, Remedy: remedy}
}

func limitError(reason, object, message, remedy string) *guestproto.WireError {
	return &guestproto.WireError{Class: "limit", Reason: reason, Object: object, Message: message, Remedy: remedy}
}

func policyError(object, message string) *guestproto.WireError {
	return &guestproto.WireError{Class: "policy", Reason: "box_tampered", Object: object, Message: message, Remedy: "make a new session"}
}

// startError says what kept a command from starting, and names it.
func startError(err error, l *launch) *guestproto.WireError {
	e, ok := errors.AsType[*spawn.Error](err)
	if !ok {
		return policyError("guest", err.Error())
	}
	program := "program " + clipped(l.program)
	cwd := "cwd " + clipped(l.dir)
	switch e.Step {
	case spawn.StepExec:
		switch e.Errno {
		case unix.ENOENT, unix.ENOTDIR:
			if strings.Contains(l.program, "/") && unix.Access(l.program, unix.F_OK) == nil {
				return userError("not_found", program, "the interpreter that it names was not found", "install the interpreter or fix the first line")
			}
			return userError("not_found", program, "not found in the box", "install it, fix PATH, or give its absolute path")
		case unix.EACCES, unix.EPERM:
			return userError("forbidden", program, "not executable by user "+l.user.name, "check its mode, or run as another user")
		case unix.ENOEXEC:
			return userError("invalid_argument", program, "not in a format that can be executed", "run it by an interpreter")
		case unix.E2BIG:
			return userError("too_large", program, "the arguments or the environment are too large for the kernel (an argument may have 128 KiB)", "pass the data by a file or by stdin")
		case unix.ENOMEM:
			return limitError("out_of_memory", program, "there was no memory to start it", "raise mem_limit")
		case unix.ETXTBSY:
			return userError("conflict", program, "it is open for writing", "end what writes it, or send it again")
		case unix.ELOOP:
			return userError("not_found", program, "its path has too many symbolic links", "give another path")
		}
		return policyError(program, "could not be executed: "+e.Errno.Error())
	case spawn.StepChdir:
		switch e.Errno {
		case unix.ENOENT:
			return userError("not_found", cwd, "no such directory in the box", "make the directory first, or give another cwd")
		case unix.ENOTDIR:
			return userError("invalid_argument", cwd, "not a directory", "give a directory")
		case unix.EACCES:
			return userError("forbidden", cwd, "not accessible to user "+l.user.name, "check its mode, or run as another user")
		}
		return userError("invalid_argument", cwd, e.Errno.Error(), "give another cwd")
	case spawn.StepUser:
		return userError("invalid_argument", "user "+clipped(l.user.name), "this id does not exist in the box: "+e.Errno.Error(), "use an id below 65536")
	case spawn.StepClone:
		if e.Errno == unix.EAGAIN {
			return limitError("rate_limited", program, "no process could be started: the limit of processes is reached", "end some processes, or raise pid_limit")
		}
		if e.Errno == unix.ENOMEM {
			return limitError("out_of_memory", program, "there was no memory to start it", "raise mem_limit")
		}
	}
	return policyError(program, "could not be started: "+e.Error())
}

// clipped keeps names in messages short.
func clipped(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
