package cgroup

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

func (h *hybrid) usage(id string, u *runtime.Usage) error {
	mem, agent := h.dirs["memory"], id+".a"
	total, err := readInt(mem, agent+"/memory.usage_in_bytes")
	if err != nil {
		return err
	}
	stat, err := readAt(mem, agent+"/memory.stat")
	if err != nil {
		return err
	}
	u.Memory = max(total-keyed(stat, "total_inactive_file"), 0)
	if u.MemoryPeak, err = readInt(mem, agent+"/memory.max_usage_in_bytes"); err != nil {
		return err
	}
	if u.MemoryLimit, err = readInt(mem, agent+"/memory.limit_in_bytes"); err != nil {
		return err
	}
	if u.MemoryLimit > 1<<60 { // the kernel's way to say none
		u.MemoryLimit = 0
	}
	if u.Pids, err = readInt(h.dirs["pids"], agent+"/pids.current"); err != nil {
		return err
	}
	if u.OOMKills, err = h.oomKills(id); err != nil {
		return err
	}
	if fd, ok := h.dirs["blkio"]; ok {
		if b, err := readAt(fd, agent+"/blkio.throttle.io_service_bytes_recursive"); err == nil {
			u.ReadBytes, u.WriteBytes = serviceBytes(b)
		}
	}
	return nil
}

// serviceBytes sums "major:minor Read n" lines.
func serviceBytes(b []byte) (read, write int64) {
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.ParseInt(string(f[2]), 10, 64)
		switch string(f[1]) {
		case "Read":
			read += n
		case "Write":
			write += n
		}
	}
	return read, write
}

func (h *hybrid) oomKills(id string) (int64, error) {
	b, err := readAt(h.dirs["memory"], id+".a/memory.oom_control")
	if err != nil {
		return 0, err
	}
	return keyed(b, "oom_kill"), nil
}

// watch registers one eventfd for the two thresholds and for OOM: the reader
// looks at the counters to see which it was. Thresholds count the page cache
// too, so a crossing means "look", not "warn".
func (h *hybrid) watch(id string) (Watch, error) {
	mem, agent := h.dirs["memory"], id+".a"
	limit, err := readInt(mem, agent+"/memory.limit_in_bytes")
	if err != nil {
		return Watch{}, err
	}
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return Watch{}, wrap("eventfd for", id, err)
	}
	for _, ev := range []struct {
		file      string
		threshold int64
	}{{"memory.usage_in_bytes", limit / 100 * 80}, {"memory.usage_in_bytes", limit / 100 * 95}, {"memory.oom_control", 0}} {
		if err := h.register(agent, efd, ev.file, ev.threshold); err != nil {
			unix.Close(efd)
			return Watch{}, err
		}
	}
	return Watch{FD: efd, Ready: unix.EPOLLIN}, nil
}

func (h *hybrid) register(agent string, efd int, file string, threshold int64) error {
	mem := h.dirs["memory"]
	fd, err := unix.Openat(mem, agent+"/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrap("open", file, err)
	}
	defer unix.Close(fd)
	line := itoa(int64(efd)) + " " + itoa(int64(fd))
	if threshold > 0 {
		line += " " + itoa(threshold)
	}
	return writeAt(mem, agent+"/cgroup.event_control", line)
}
