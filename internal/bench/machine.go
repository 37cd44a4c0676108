package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine describes where a report was measured.
type Machine struct {
	CPU     string  `json:"cpu"`
	Cores   int     `json:"cores"`
	MemGiB  float64 `json:"mem_gib"`
	Kernel  string  `json:"kernel"`
	Virtual bool    `json:"virtual"`
	Load1   float64 `json:"load_1m_before"` // of the machine before the run: other work disturbs figures
}

func (m Machine) String() string {
	v := ""
	if m.Virtual {
		v = ", virtual"
	}
	return fmt.Sprintf("%d cores (%s), %.0f GiB, Linux %s%s, load before %.2f", m.Cores, m.CPU, m.MemGiB, m.Kernel, v, m.Load1)
}

func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), CPU: "unknown"}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok {
				switch strings.TrimSpace(k) {
				case "model name":
					m.CPU = strings.TrimSpace(v)
				case "flags":
					m.Virtual = strings.Contains(v, " hypervisor")
				}
			}
		}
	}
	if kib, err := meminfo("MemTotal"); err == nil {
		m.MemGiB = float64(kib) / (1 << 20)
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		m.Load1, _ = strconv.ParseFloat(first, 64)
	}
	return m
}

// meminfo reads one field of /proc/meminfo, in KiB.
func meminfo(field string) (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), field+":"); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", field)
}

// cpuTime is the busy CPU time of the whole machine since boot, from
// /proc/stat (user, nice, system, irq, softirq; in ticks of 1/100 s).
func cpuTime() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} {
		if i < len(f) {
			n, _ := strconv.ParseInt(f[i], 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
