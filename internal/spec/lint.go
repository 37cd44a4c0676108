package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// LintOptions tell the linter about the place where the spec will run. The zero
// value is right for any place.
type LintOptions struct {
	// DataDirs are the platform's own directories, refused as mounts.
	DataDirs []string
	// NeverGranted are the system calls that no allow_extra gives, with the reason:
	// the list of the runtime that will make the box.
	NeverGranted map[string]string
}

// Lint says what is dangerous in a document and why, in the order of the text.
// It looks at the values and, for engine sockets, at every text in it, so that
// it also works on a document that Parse refused. A spec is clean when it has no
// finding above Note.
func Lint(doc *Document, o LintOptions) []Finding {
	l := &linter{doc: doc, o: o}
	if doc.Sandbox != nil {
		l.part = sandboxKey
		l.sandbox(doc.Sandbox)
	}
	if doc.Scheduler != nil {
		l.part = schedulerKey
		l.scheduler(doc.Scheduler)
	}
	for _, n := range doc.nodes {
		l.sockets(n)
	}
	slices.SortStableFunc(l.found, func(a, b Finding) int { return a.Line - b.Line })
	return l.found
}

// Clean tells whether nothing is above Note.
func Clean(fs []Finding) bool {
	return !slices.ContainsFunc(fs, func(f Finding) bool { return f.Severity != Note })
}

type linter struct {
	doc   *Document
	o     LintOptions
	part  string
	found []Finding
}

func (l *linter) add(sev Severity, field, rule, message, remedy string) {
	full, pl := l.doc.at(l.part, field)
	l.found = append(l.found, Finding{sev, l.doc.File, pl.line, pl.column, full, rule, message, remedy})
}

func (l *linter) sandbox(s *Sandbox) {
	l.mounts(s)
	if s.User == "root" || s.User == "0" {
		if s.ReadOnlyRoot() {
			l.add(Error, "user", "root-without-need", "every command would run as the box's root, but with a read-only root nothing here needs it; a mistake of the agent then breaks its own tools", "remove user: root (single commands may still ask for it), or write fs.rootfs: writable if the task installs packages")
		} else {
			l.add(Note, "user", "root", "commands run as root of the box, which is nobody on the host", "leave it out if the task does not install packages")
		}
	}
	if s.NewPrivileges {
		l.add(Note, "new_privileges", "new-privileges", "set-user-id programs like sudo gain root of the box; capabilities and system calls stay bounded", "leave it out if nothing calls sudo")
	}
	l.network(&s.Network)
	for i, c := range s.Seccomp.AllowExtra {
		if why, ok := l.o.NeverGranted[c]; ok {
			l.add(Error, fmt.Sprintf("seccomp.allow_extra[%d]", i), "syscall-never-granted", c+" is never granted, whatever a spec says: "+why, "remove it")
		}
	}
	l.releaseNotes(s)
}

// releaseNotes says what Check would refuse, without making the text unclean:
// it is right, only not startable by this release.
func (l *linter) releaseNotes(s *Sandbox) {
	if s.Runtime != "" && s.Runtime != RuntimeNative {
		l.add(Note, "runtime", "not-in-this-release", "the runtime "+s.Runtime+" is refused at create by this release", "use runtime: native")
	}
}

func (l *linter) mounts(s *Sandbox) {
	for i, m := range s.FS.Mounts {
		field := fmt.Sprintf("fs.mounts[%d]", i)
		if why := escapes(m.Source, l.o.DataDirs); why != "" {
			l.add(Error, field, "escape-mount", m.Source+" "+why, "mount a directory that holds data alone, like /srv/datasets/x")
		}
		if m.ReadOnly != nil && !*m.ReadOnly {
			l.add(Error, field, "shared-writable", m.Source+" would be writable in every box that mounts it: one task then reads what another wrote", "leave readonly out, and write into fs.writable_dirs, which each box has for itself")
		}
	}
}

func (l *linter) scheduler(s *Scheduler) {
	if s.MemoryOvercommitRatio > 1 {
		l.add(Error, "memory_overcommit_ratio", "memory-overcommit", fmt.Sprintf("a ratio of %g promises memory that does not exist: when it is used, processes are killed and their trajectories lost", s.MemoryOvercommitRatio), "write 1.0")
	}
	if s.CPUOvercommitRatio > 2 {
		l.add(Warning, "cpu_overcommit_ratio", "cpu-overcommit", fmt.Sprintf("a ratio of %g slows every box at a peak", s.CPUOvercommitRatio), "use 1.5 to 2")
	}
	if len(s.PriorityLevels) > 0 {
		l.add(Note, "priority_levels", "priority-not-acting", "the queue is first in, first out in this release; the weights are kept but do not act", "nothing to do; do not rely on them yet")
	}
}

// sockets finds the name of an engine's socket in any text that is not a mount
// already reported.
func (l *linter) sockets(n *yaml.Node) {
	for _, c := range n.Content {
		l.sockets(c)
	}
	if n.Kind != yaml.ScalarNode {
		return
	}
	for _, s := range engineSockets {
		if !strings.Contains(n.Value, s) {
			continue
		}
		if slices.ContainsFunc(l.found, func(f Finding) bool { return f.Rule == "escape-mount" && f.Line == n.Line }) {
			return
		}
		l.found = append(l.found, Finding{Error, l.doc.File, n.Line, n.Column, "", "escape-mount", n.Value + " names a container engine's socket: a box that can talk to it is root on the host", "remove it"})
		return
	}
}
