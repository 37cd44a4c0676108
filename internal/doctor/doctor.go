// Package doctor examines a machine: can boxes run here, what is missing, what
// is left over, and what to do about each. Features are probed by trying them,
// never guessed from version numbers. It changes nothing: what a probe makes, it
// removes before it returns.
package doctor

import (
	"context"
	"io/fs"
	"time"
)

// Status of a check.
type Status string

const (
	OK   Status = "ok"
	Warn Status = "warn" // works, with a loss that Remedy says how to avoid
	Fail Status = "fail" // boxes cannot run until Remedy is done
)

// Check is one finding. Remedy is empty only when Status is OK.
type Check struct {
	Name   string `json:"name"` // stable: "userns", "cgroup-controllers", …
	Group  string `json:"group"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// Host is the machine as the checks see it. Linux gives the real one; tests
// give a made-up file tree and figures.
type Host struct {
	FS      fs.FS // the root directory; names have no leading slash
	Euid    int
	DataDir string
	Kernel  func() string // release, as uname -r
	Arch    string
	// Disk gives the file system that holds an existing path.
	Disk func(path string) (Disk, error)
	// OpenFiles is the hard RLIMIT_NOFILE.
	OpenFiles func() (uint64, error)
	// Synced tells whether the clock is disciplined by a time source.
	Synced func() (bool, error)
	Now    func() time.Time
	// Server asks a running daemon for its health; nil when none can be asked.
	Server func(ctx context.Context) (string, error)
	// Probes try kernel features.
	Probes []Probe
}

// Disk is a file system's figures.
type Disk struct {
	Type       string // ext4, xfs, overlay, tmpfs, …
	Free, Size uint64 // bytes
	Inodes     uint64 // 0 when the file system has no fixed number
	InodesFree uint64
	ReadOnly   bool
}

// Probe tries one feature. Run says how it works here, or why it does not.
type Probe struct {
	Name   string
	Need   Status // status when it fails: Fail when boxes need it, else Warn
	Remedy string
	Run    func(ctx context.Context) (string, error)
}

// Run makes every check, in the order in which a person would fix things.
func Run(ctx context.Context, h Host) []Check {
	r := &report{h: h}
	r.machine()
	r.userns()
	r.security()
	r.cgroups()
	r.storage()
	r.probes(ctx)
	r.limits()
	r.resources()
	r.leftovers()
	r.server(ctx)
	return r.checks
}

// Worst gives the gravest status of checks.
func Worst(checks []Check) Status {
	worst := OK
	for _, c := range checks {
		if c.Status == Fail || c.Status == Warn && worst == OK {
			worst = c.Status
		}
	}
	return worst
}

// report collects checks.
type report struct {
	h      Host
	group  string
	checks []Check
}

func (r *report) add(name string, s Status, found, remedy string) {
	if s == OK {
		remedy = ""
	}
	r.checks = append(r.checks, Check{Name: name, Group: r.group, Status: s, Found: found, Remedy: remedy})
}

func (r *report) probes(ctx context.Context) {
	r.group = "kernel"
	for _, p := range r.h.Probes {
		found, err := p.Run(ctx)
		if err != nil {
			r.add(p.Name, p.Need, err.Error(), p.Remedy)
			continue
		}
		r.add(p.Name, OK, found, "")
	}
}

func (r *report) server(ctx context.Context) {
	if r.h.Server == nil {
		return
	}
	r.group = "server"
	found, err := r.h.Server(ctx)
	if err != nil {
		r.add("server", Warn, err.Error(), "start it with `dsec up`; `dsec run` needs none")
		return
	}
	r.add("server", OK, found, "")
}
