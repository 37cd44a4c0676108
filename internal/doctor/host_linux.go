package doctor

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Linux gives this machine. dataDir need not exist yet.
func Linux(dataDir string) Host {
	return Host{
		FS:      os.DirFS("/"),
		Euid:    os.Geteuid(),
		DataDir: dataDir,
		Kernel:  release,
		Arch:    runtime.GOARCH,
		Disk:    disk,
		OpenFiles: func() (uint64, error) {
			var l unix.Rlimit
			err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
			return l.Max, err
		},
		Synced: func() (bool, error) {
			var t unix.Timex
			state, err := unix.Adjtimex(&t)
			return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, err
		},
		Now:    time.Now,
		Probes: probes(dataDir),
	}
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

var magics = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse", unix.MSDOS_SUPER_MAGIC: "vfat",
	unix.V9FS_MAGIC: "9p", unix.F2FS_SUPER_MAGIC: "f2fs", 0x2fc12fc1: "zfs",
}

func disk(path string) (Disk, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Disk{}, err
	}
	name, ok := magics[int64(s.Type)]
	if !ok {
		name = fmt.Sprintf("type 0x%x", s.Type)
	}
	b := uint64(s.Bsize)
	return Disk{Type: name, Free: s.Bavail * b, Size: s.Blocks * b, Inodes: s.Files, InodesFree: s.Ffree, ReadOnly: s.Flags&unix.ST_RDONLY != 0}, nil
}
