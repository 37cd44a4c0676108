package e2b

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
)

const maxLogs = 1000

// logEntry is an event of a sandbox's life. What its processes print is theirs: it is had by
// following them, and kept nowhere else.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// logLine is the older form of an entry.
type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

// levels, lowest first.
var levels = []string{"debug", "info", "warn", "error"}

// logQuery selects entries.
type logQuery struct {
	from     time.Time
	backward bool
	level    string
	search   string
	limit    int
}

func (f *Facade) logsV1(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "start", "limit"); err != nil {
		return err
	}
	q, err := readLogQuery(r, "start")
	if err != nil {
		return err
	}
	entries, err := f.logs(r, q)
	if err != nil {
		return err
	}
	lines := make([]logLine, len(entries))
	for i, e := range entries {
		lines[i] = logLine{e.Timestamp, e.Message}
	}
	WriteJSON(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": entries})
	return nil
}

func (f *Facade) logsV2(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "cursor", "limit", "direction", "level", "search"); err != nil {
		return err
	}
	q, err := readLogQuery(r, "cursor")
	if err != nil {
		return err
	}
	entries, err := f.logs(r, q)
	if err != nil {
		return err
	}
	WriteJSON(w, http.StatusOK, map[string]any{"logs": entries})
	return nil
}

func readLogQuery(r *http.Request, from string) (q logQuery, err error) {
	v := r.URL.Query()
	q.limit, q.search, q.level = maxLogs, v.Get("search"), v.Get("level")
	if s := v.Get("limit"); s != "" {
		if q.limit, err = strconv.Atoi(s); err != nil || q.limit < 0 || q.limit > maxLogs {
			return q, badQuery("limit", "use 0 to "+strconv.Itoa(maxLogs), s)
		}
	}
	if s := v.Get(from); s != "" {
		ms, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return q, badQuery(from, "give milliseconds since 1970", s)
		}
		q.from = time.UnixMilli(ms)
	}
	if q.level != "" && !slices.Contains(levels, q.level) {
		return q, badQuery("level", "use "+strings.Join(levels, ", "), q.level)
	}
	switch s := v.Get("direction"); s {
	case "", "forward":
	case "backward":
		q.backward = true
	default:
		return q, badQuery("direction", "use forward or backward", s)
	}
	return q, nil
}

func (f *Facade) logs(r *http.Request, q logQuery) ([]logEntry, error) {
	s, err := f.asked(r)
	if err != nil {
		return nil, err
	}
	return q.of(f.cfg.Sandboxes.history(r.Context(), s)), nil
}

// history gives what is known of a sandbox's life, oldest first. The processes of a paused one cannot be asked for.
func (s *Sandboxes) history(ctx context.Context, of *control.Session) []logEntry {
	out := []logEntry{{Timestamp: started(of), Level: "info", Message: "sandbox started", Fields: map[string]string{"template": of.Labels[labelTemplate]}}}
	if paused(of) {
		return append(out, logEntry{Timestamp: of.Updated.UTC(), Level: "info", Message: "sandbox paused", Fields: map[string]string{"reason": of.Reason}})
	}
	g, release, err := s.control.Reach(ctx, of.ID, false)
	if err != nil {
		return out
	}
	defer release()
	ops, err := g.List(ctx)
	if err != nil {
		return out
	}
	for _, op := range ops {
		fields := map[string]string{"pid": strconv.Itoa(op.Pid), "user": op.User, "cwd": op.Cwd}
		began := time.Unix(0, op.StartedUnix).UTC()
		out = append(out, logEntry{Timestamp: began, Level: "info", Message: "process started: " + Clip(strings.ToValidUTF8(strings.Join(op.Argv, " "), "\uFFFD")), Fields: fields})
		if r := op.Result; r != nil {
			ended := logEntry{Timestamp: began.Add(time.Duration(r.WallMs * float64(time.Millisecond))), Level: "info", Message: "process ended", Fields: map[string]string{"pid": fields["pid"], "exit_code": strconv.Itoa(int(r.ExitCode))}}
			if r.ExitCode != 0 {
				ended.Level = "warn"
			}
			out = append(out, ended)
		}
	}
	slices.SortStableFunc(out, func(a, b logEntry) int { return cmp.Compare(a.Timestamp.UnixNano(), b.Timestamp.UnixNano()) })
	return out
}

func (q *logQuery) of(all []logEntry) []logEntry {
	out := []logEntry{}
	for _, e := range all {
		if slices.Index(levels, e.Level) < slices.Index(levels, q.level) || !strings.Contains(e.Message, q.search) {
			continue
		}
		if !q.from.IsZero() && (q.backward && e.Timestamp.After(q.from) || !q.backward && e.Timestamp.Before(q.from)) {
			continue
		}
		out = append(out, e)
	}
	if q.backward {
		slices.Reverse(out)
	}
	return out[:min(len(out), q.limit)]
}
