package limit

import (
	"sync"
	"time"
)

// Names bounds the distinct names of one minute. The zero value admits none but those seen; use
// NewNames. It is safe for concurrent use.
type Names struct {
	most  int
	mu    sync.Mutex
	seen  map[string]struct{}
	since time.Time
}

// NewNames admits most distinct names a minute.
func NewNames(most int) *Names { return &Names{most: most} }

// Admit tells whether name may be asked: it was asked in this minute, or there is room for one more.
func (n *Names) Admit(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); n.seen == nil || now.Sub(n.since) >= time.Minute {
		n.seen, n.since = map[string]struct{}{}, now
	}
	if _, ok := n.seen[name]; ok {
		return true
	}
	if len(n.seen) >= n.most {
		return false
	}
	n.seen[name] = struct{}{}
	return true
}
