package cgroup

import (
	"bytes"
	"strconv"

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

// peak reads the high-water mark. Thresholds with an eventfd (cgroup.event_control)
// would spare the reading, but registering one waits for RCU: 10 ms and more a box.
func (h *hybrid) peak(id string) (int64, error) {
	return readInt(h.dirs["memory"], id+".a/memory.max_usage_in_bytes")
}
