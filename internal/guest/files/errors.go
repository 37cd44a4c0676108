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

// causes maps what the kernel says. Anything else is the request's fault: a
// guest never claims a failure of the platform.
var causes = map[unix.Errno]guestproto.WireError{
	unix.ENOENT:       {Reason: "not_found", Remedy: "check the path, or make its parent directories"},
	unix.EACCES:       {Reason: "forbidden", Remedy: "use a user who may, such as root"},
	unix.EPERM:        {Reason: "forbidden", Remedy: "use a user who may, such as root"},
	unix.EROFS:        {Reason: "forbidden", Remedy: "write below one of the box's fs.writable_dirs, or ask for a writable root"},
	unix.EEXIST:       {Reason: "already_exists", Remedy: "use another name, or allow overwriting"},
	unix.ENOTEMPTY:    {Reason: "conflict", Remedy: "remove it recursively"},
	unix.EBUSY:        {Reason: "conflict", Remedy: "it is a mount point or in use: use another path"},
	unix.ETXTBSY:      {Reason: "conflict", Remedy: "end the program that runs from it"},
	unix.EXDEV:        {Reason: "conflict", Remedy: "hard links stay on one file system: use a symbolic link"},
	unix.EISDIR:       {Reason: "invalid_argument", Remedy: "name a file"},
	unix.ENOTDIR:      {Reason: "invalid_argument", Remedy: "name a directory"},
	unix.ELOOP:        {Reason: "invalid_argument", Remedy: "check the symbolic links on the path"},
	unix.ENAMETOOLONG: {Reason: "invalid_argument", Remedy: "names have at most 255 bytes, paths 4095"},
	unix.EMFILE:       {Class: "limit", Reason: "rate_limited", Remedy: "run fewer file operations at a time"},
	unix.ENFILE:       {Class: "limit", Reason: "rate_limited", Remedy: "run fewer file operations at a time"},
	unix.ENOMEM:       {Class: "limit", Reason: "out_of_memory", Remedy: "ask for a larger mem_limit"},
}

func pathError(path string, errno unix.Errno) error {
	object := "path " + path
	switch errno {
	case unix.ENOSPC, unix.EDQUOT:
		return diskFull(object, "the box's disk is full")
	case unix.EFBIG:
		return diskFull(object, "the file is larger than the box's file size limit")
	case unix.ENXIO:
		return notRegular(path)
	}
	e, ok := causes[errno]
	if !ok {
		e.Reason, e.Remedy = "invalid_argument", "check the path and the request"
	}
	if e.Class == "" {
		e.Class = "user"
	}
	e.Object, e.Message = object, errno.Error()
	return &e
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
