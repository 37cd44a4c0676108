package tmpl

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/e2b"
)

// statusOf is a build's status on the wire, where a request that nobody has started waits.
func statusOf(s build.Status) string {
	if s == build.Requested {
		return string(build.Waiting)
	}
	return string(s)
}

// stepName is how SDKs know a step: they find the line of the user's program by it.
func stepName(n, steps int) string {
	switch {
	case n == 0:
		return "base"
	case n > steps:
		return "finalize"
	}
	return strconv.Itoa(n)
}

type logEntry struct {
	Time    time.Time `json:"timestamp"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
	Step    string    `json:"step,omitempty"`
}

var levels = []string{"debug", "info", "warn", "error"}

// entries gives those of at least a level.
func entries(all []build.Entry, level string, steps int) []logEntry {
	least := slices.Index(levels, level)
	out := []logEntry{}
	for _, e := range all {
		if slices.Index(levels, e.Level) >= least {
			out = append(out, logEntry{e.Time, e.Level, e.Message, stepName(e.Step, steps)})
		}
	}
	return out
}

type reason struct {
	Message string     `json:"message"`
	Step    string     `json:"step"`
	Entries []logEntry `json:"logEntries"`
}

// maxPage is how much of a log or list is given at a time.
const maxPage = 100

func (h *Handler) status(w http.ResponseWriter, r *http.Request) error {
	offset, err := number(r, "logsOffset", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", maxPage, 0, maxPage)
	if err != nil {
		return err
	}
	level, err := choice(r, "level", "debug", levels...)
	if err != nil {
		return err
	}
	project, id, bid := caller(r).Project, r.PathValue("id"), r.PathValue("build")
	b, err := h.builds.Build(project, id, bid) // before the log: what it said by then is in it
	if err != nil {
		return err
	}
	log, err := h.builds.Log(project, id, bid)
	if err != nil {
		return err
	}
	all := entries(log, level, b.Steps)
	offset = min(offset, len(all))
	out := struct {
		Template string     `json:"templateID"`
		Build    string     `json:"buildID"`
		Status   string     `json:"status"`
		Logs     []string   `json:"logs"` // of a form that is gone
		Entries  []logEntry `json:"logEntries"`
		Reason   *reason    `json:"reason,omitempty"`
	}{b.Template, b.ID, statusOf(b.Status), []string{}, all[offset:min(offset+limit, len(all))], nil}
	if b.Status == build.Failed {
		out.Reason = &reason{b.Reason, stepName(b.Step, b.Steps), entries(log, "error", b.Steps)}
	}
	e2b.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (h *Handler) logs(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", maxPage, 0, maxPage)
	if err != nil {
		return err
	}
	cursor, err := number(r, "cursor", 0, 0, 1<<62)
	if err != nil {
		return err
	}
	direction, err := choice(r, "direction", "forward", "forward", "backward")
	if err != nil {
		return err
	}
	level, err := choice(r, "level", "debug", levels...)
	if err != nil {
		return err
	}
	if _, err := choice(r, "source", "persistent", "persistent", "temporary"); err != nil { // one log serves both
		return err
	}
	project, id, bid := caller(r).Project, r.PathValue("id"), r.PathValue("build")
	b, err := h.builds.Build(project, id, bid)
	if err != nil {
		return err
	}
	log, err := h.builds.Log(project, id, bid)
	if err != nil {
		return err
	}
	all := entries(log, level, b.Steps)
	// The cursor is a time in milliseconds: from then on, or before it.
	at := time.UnixMilli(int64(cursor))
	if direction == "backward" {
		if cursor > 0 {
			all = slices.DeleteFunc(all, func(e logEntry) bool { return !e.Time.Before(at) })
		}
		slices.Reverse(all)
	} else {
		all = slices.DeleteFunc(all, func(e logEntry) bool { return e.Time.Before(at) })
	}
	e2b.WriteJSON(w, http.StatusOK, map[string][]logEntry{"logs": all[:min(limit, len(all))]})
	return nil
}
