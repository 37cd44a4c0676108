package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows one line that is written over, on a terminal only; elsewhere
// each new step is a line of its own. Safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	live  bool
	width int
	off   bool
	last  string
	next  time.Time
}

func (e *Env) progress() *progress {
	fd, live := tty(e.Err)
	p := &progress{w: e.Err, live: live, off: e.quiet || e.JSON(), width: 80}
	if live {
		if w, _, err := term.GetSize(fd); err == nil && w > 10 {
			p.width = w
		}
	}
	return p
}

// step says what is done now; done of total, when total is known.
func (p *progress) step(what string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return
	}
	if !p.live {
		if what != p.last {
			writeAll(p.w, printable(what)+"\n")
			p.last = what
		}
		return
	}
	now := time.Now()
	if what == p.last && now.Before(p.next) {
		return
	}
	p.last, p.next = what, now.Add(80*time.Millisecond)
	if total > 0 {
		what = fmt.Sprintf("%s  %d%%", what, done*100/total)
	} else if done > 0 {
		what = fmt.Sprintf("%s  %d", what, done)
	}
	p.line(what)
}

// status writes a whole line over the last one; terminals only.
func (p *progress) status(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.off && p.live {
		p.line(line)
	}
}

func (p *progress) line(s string) {
	s = printable(s)
	if r := []rune(s); len(r) >= p.width {
		s = string(r[:p.width-1])
	}
	writeAll(p.w, "\r"+s+"\x1b[K")
}

// done removes the line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.off && p.live {
		writeAll(p.w, "\r\x1b[K")
	}
}
