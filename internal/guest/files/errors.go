package files

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

func invalid(object, message, remedy string) error {
	return &guestproto.WireError{Class: "user", Reason: "invalid_argument", Object: object, Message: message, Remedy: remedy}
}

func notFound(object, message, remedy string) error {
	return &guestproto.WireError{Class: "user", Reason: "not_found", Object: object, Message: message, Remedy: remedy}
}

func conflict(object, message, remedy string) error {
	return &guestproto.WireError{Class: "user", Reason: "conflict", Object: object, Message: message, Remedy: remedy}
}

func diskFull(object, message string) error {
	return &guestproto.WireError{Class: "limit", Reason: "disk_full", Object: object, Message: message,
		Remedy: "remove files, or ask for a larger fs.writable_size_limit or fs.tmp_size_limit"}
}

// at says which path an error is about; errors that say so themselves, and those of the stream, stay.
func at(path string, err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return pathError(path, errno)
	}
	return err
}

func pathError(path string, errno unix.Errno) error {
	object := "path " + path
	e := &guestproto.WireError{Class: "user", Object: object, Message: errno.Error()}
	switch errno {
	case unix.ENOSPC, unix.EDQUOT:
		return diskFull(object, "the box's disk is full")
	case unix.EFBIG:
		return diskFull(object, "the file is larger than the box's file size limit")
	case unix.ENXIO:
		return notRegular(path)
	case unix.EMFILE, unix.ENFILE:
		e.Class, e.Reason, e.Remedy = "limit", "rate_limited", "run fewer file operations at a time"
	case unix.ENOMEM:
		e.Class, e.Reason, e.Remedy = "limit", "out_of_memory", "ask for a larger mem_limit"
	case unix.ENOENT:
		e.Reason, e.Remedy = "not_found", "check the path, or make its parent directories"
	case unix.EACCES, unix.EPERM:
		e.Reason, e.Remedy = "forbidden", "use a user who may, such as root"
	case unix.EROFS:
		e.Reason, e.Remedy = "forbidden", "write below one of the box's fs.writable_dirs, or ask for a writable root"
	case unix.EEXIST:
		e.Reason, e.Remedy = "already_exists", "use another name, or allow overwriting"
	case unix.ENOTEMPTY:
		e.Reason, e.Remedy = "conflict", "remove it recursively"
	case unix.EBUSY:
		e.Reason, e.Remedy = "conflict", "it is a mount point or in use: use another path"
	case unix.ETXTBSY:
		e.Reason, e.Remedy = "conflict", "end the program that runs from it"
	case unix.EXDEV:
		e.Reason, e.Remedy = "conflict", "hard links stay on one file system: use a symbolic link"
	case unix.ECANCELED:
		e.Reason, e.Remedy = "canceled", "send it again"
	case unix.EISDIR:
		e.Reason, e.Remedy = "invalid_argument", "name a file"
	case unix.ENOTDIR:
		e.Reason, e.Remedy = "invalid_argument", "name a directory"
	case unix.ELOOP:
		e.Reason, e.Remedy = "invalid_argument", "check the symbolic links on the path"
	case unix.ENAMETOOLONG:
		e.Reason, e.Remedy = "invalid_argument", "names have at most 255 bytes, paths 4095"
	default:
		// Whatever else the kernel says, a guest never claims a failure of the platform.
		e.Reason, e.Remedy = "invalid_argument", "check the path and the request"
	}
	return e
}

func notRegular(path string) error {
	return invalid("path "+path, "it is a FIFO, a socket or a device, not a regular file", "name a regular file")
}

// wireError is what the stream is reset with.
func wireError(object string, err error) *guestproto.WireError {
	if e, ok := errors.AsType[*guestproto.WireError](err); ok {
		return e
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return pathError(object, errno).(*guestproto.WireError)
	}
	e := &guestproto.WireError{Class: "user", Reason: "canceled", Object: object, Message: err.Error(), Remedy: "send it again"}
	if err == io.ErrUnexpectedEOF {
		e.Reason, e.Message = "invalid_argument", "the data ended early"
	}
	return e
}
