// Package sleeper is what PID 1 of a box is while the box rests: a program of one page that waits for a connection and
// then becomes the guest again. A guest takes 0.8 MiB of a box, page tables and stacks of threads included; the sleeper 50 KiB.
package sleeper

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenFD is the socket that the sleeper waits on, as its program has it.
const ListenFD = 3

// name is that of the program's anonymous file, as /proc shows it.
const name = "dsec-rest"

// maxCode is more than the program is long; what follows it in memory is never reached.
const maxCode = 256

// code is where the program is in this process.
func code() *[maxCode]byte

// Sizes of ELF's headers, and where the program is loaded: at no address that matters.
const (
	fileHeader    = 64
	programHeader = 56
	entry         = fileHeader + 2*programHeader
	base          = 0x400000
)

// image is the program as an ELF file: one read-only segment, and a stack that cannot be executed.
func image() []byte {
	b := make([]byte, 0, entry+maxCode)
	le := binary.LittleEndian
	b = append(b, "\x7fELF\x02\x01\x01"...)
	b = append(b, make([]byte, 9)...)
	b = le.AppendUint16(b, 2)  // ET_EXEC
	b = le.AppendUint16(b, 62) // EM_X86_64
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, base+entry)
	b = le.AppendUint64(b, fileHeader) // program headers' offset
	b = le.AppendUint64(b, 0)          // no sections
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, fileHeader)
	b = le.AppendUint16(b, programHeader)
	b = le.AppendUint16(b, 2)
	b = append(b, make([]byte, 6)...)
	segment := func(typ, flags uint32, addr, size, align uint64) {
		b = le.AppendUint32(b, typ)
		b = le.AppendUint32(b, flags)
		for _, v := range [...]uint64{0, addr, addr, size, size, align} {
			b = le.AppendUint64(b, v)
		}
	}
	segment(1, 5, base, entry+maxCode, 4096) // PT_LOAD, R|X
	segment(0x6474e551, 6, 0, 0, 16)         // PT_GNU_STACK, R|W
	return append(b, code()[:]...)
}

// Exec makes this process the sleeper. When somebody connects to ListenFD, that executes this process's program with
// args and the same environment; args[1] is set to what it needs. Descriptors that shall live on must not be
// close-on-exec. Exec returns only when it fails, and then nothing but args has changed.
func Exec(args []string) error {
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(self)
	file, err := executable(image())
	if err != nil {
		return err
	}
	defer unix.Close(file)
	if err := KeepOnExec(self, true); err != nil {
		return err
	}
	args[1] = strconv.Itoa(self)
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return err
	}
	err = syscall.Exec("/proc/self/fd/"+strconv.Itoa(file), args, os.Environ()) // which lowers the limit for the next program
	_ = unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil)
	return err
}

// Program is the executable that a process runs; of a sleeper, the guest's that it becomes again.
func Program(pid int) (string, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	exe, err := os.Readlink(proc + "/exe")
	if err != nil || exe != "/memfd:"+name+" (deleted)" {
		return exe, err
	}
	cmdline, err := os.ReadFile(proc + "/cmdline")
	if err != nil {
		return "", err
	}
	if args := strings.Split(string(cmdline), "\x00"); len(args) > 1 {
		return os.Readlink(proc + "/fd/" + args[1])
	}
	return exe, nil
}

// KeepOnExec sets whether a descriptor lives on in the next program.
func KeepOnExec(fd int, keep bool) error {
	flags := unix.FD_CLOEXEC
	if keep {
		flags = 0
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags)
	return err
}

// executable gives an anonymous file that may be executed. Kernels before 6.3 do not know that flag, and need none.
func executable(content []byte) (int, error) {
	fd, err := File(name, content, unix.MFD_EXEC)
	if err == unix.EINVAL {
		fd, err = File(name, content, 0)
	}
	return fd, err
}

// File makes an anonymous file, close-on-exec and with memfd_create's flags. It is read by offset: its position is its end.
func File(name string, content []byte, flags int) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|flags)
	if err != nil {
		return -1, err
	}
	n, err := unix.Write(fd, content)
	if err == nil && n < len(content) {
		err = unix.ENOSPC
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
