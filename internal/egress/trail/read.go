package trail

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

const suffix = ".jsonl"

// segmentName sorts by time.
func segmentName(t time.Time) string { return fmt.Sprintf("%020d%s", t.UnixNano(), suffix) }

// segments of a project, oldest first.
func segments(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(out)
	return out, err
}

// trim removes the oldest segments while there is more than keep, but never the newest.
func trim(dir string, keep int64) error {
	list, err := segments(dir)
	if err != nil {
		return err
	}
	var sum int64
	for i := len(list) - 1; i >= 0; i-- {
		if st, err := os.Stat(list[i]); err == nil {
			sum += st.Size()
		}
		if sum > keep && i < len(list)-1 {
			if err := os.Remove(list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Filter picks decisions of one project. Zero fields pick all.
type Filter struct {
	Project string
	Session string
	Since   time.Time
	Verdict egress.Verdict
	Limit   int // the newest so many; 0: 1,000
}

func (f *Filter) takes(d *egress.Decision) bool {
	return d.Project == f.Project && (f.Session == "" || d.Session == f.Session) && !d.Time.Before(f.Since) && (f.Verdict == "" || d.Verdict == f.Verdict)
}

// Find gives recorded decisions, oldest first. It reads the newest segments first and no more than it needs.
func (t *Trail) Find(ctx context.Context, f Filter) ([]egress.Decision, error) {
	t.sync()
	if f.Limit <= 0 {
		f.Limit = 1000
	}
	list, err := segments(filepath.Join(t.dir, f.Project))
	if err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "record of egress", "it cannot be read: %w", err)
	}
	var out []egress.Decision
	for i := len(list) - 1; i >= 0 && len(out) < f.Limit; i-- {
		if err := ctx.Err(); err != nil {
			return nil, errdefs.From(err)
		}
		found, err := scan(list[i], &f)
		if errors.Is(err, fs.ErrNotExist) { // trimmed meanwhile
			break
		} else if err != nil {
			return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "record of egress", "it cannot be read: %w", err)
		}
		out = append(found, out...)
		if st, err := os.Stat(list[i]); err == nil && st.ModTime().Before(f.Since) {
			break
		}
	}
	return out[max(0, len(out)-f.Limit):], nil
}

// scan reads one segment. A line that is not whole (of a killed daemon) is skipped.
func scan(path string, f *Filter) ([]egress.Decision, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var out []egress.Decision
	sc := bufio.NewScanner(file)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	for sc.Scan() {
		if f.Session != "" && !bytes.Contains(sc.Bytes(), []byte(f.Session)) {
			continue
		}
		var d egress.Decision
		if json.Unmarshal(sc.Bytes(), &d) == nil && f.takes(&d) {
			out = append(out, d)
			if len(out) >= 2*f.Limit { // only the newest are asked for
				out = append(out[:0], out[len(out)-f.Limit:]...)
			}
		}
	}
	return out, sc.Err()
}

// follower gets decisions as they are recorded.
type follower struct {
	filter Filter
	ch     chan egress.Decision
}

// Follow gives decisions from now on until ctx ends or the trail is closed, then closes the channel. A
// reader that is too slow misses some.
func (t *Trail) Follow(ctx context.Context, f Filter) <-chan egress.Decision {
	w := &follower{filter: f, ch: make(chan egress.Decision, 1024)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.followers == nil {
		close(w.ch)
		return w.ch
	}
	t.followers[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, ok := t.followers[w]; ok {
			delete(t.followers, w)
			close(w.ch)
		}
	})
	return w.ch
}

func (t *Trail) tell(d egress.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.followers {
		if w.filter.takes(&d) {
			select {
			case w.ch <- d:
			default:
			}
		}
	}
}

func (t *Trail) endFollowers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.followers {
		close(w.ch)
	}
	t.followers = nil
}
