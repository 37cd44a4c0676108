package e2b

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

const (
	stateRunning = "running"
	statePaused  = "paused"

	maxPage = 100
	// scanned is how many sessions are looked at with one query of the store.
	scanned = 500
)

// listQuery is what a list is asked for.
type listQuery struct {
	metadata map[string]string
	states   []string
	template string // id or alias; empty: any
	after    time.Time
	oldest   bool // oldest first
	limit    int  // 0: all
	page     string
}

// listV1 gives all running sandboxes.
func (f *Facade) listV1(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "metadata"); err != nil {
		return err
	}
	q := listQuery{states: []string{stateRunning}}
	var err error
	if q.metadata, err = readMetadataQuery(r.URL.Query().Get("metadata")); err != nil {
		return err
	}
	return f.list(w, r, q)
}

func (f *Facade) listV2(w http.ResponseWriter, r *http.Request) error {
	q, err := readListQuery(r)
	if err != nil {
		return err
	}
	return f.list(w, r, q)
}

func (f *Facade) list(w http.ResponseWriter, r *http.Request, q listQuery) error {
	page, next, err := f.cfg.Sandboxes.list(r.Context(), CallerOf(r.Context()).Project, q)
	if err != nil {
		return err
	}
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	out := make([]listedSandbox, len(page))
	for i, s := range page {
		out[i] = listed(s)
	}
	WriteJSON(w, http.StatusOK, out)
	return nil
}

func readListQuery(r *http.Request) (q listQuery, err error) {
	if err := checkQuery(r, "metadata", "state", "template", "startedAfter", "order", "limit", "nextToken"); err != nil {
		return q, err
	}
	v := r.URL.Query()
	if q.metadata, err = readMetadataQuery(v.Get("metadata")); err != nil {
		return q, err
	}
	for _, s := range v["state"] { // repeated, or with commas
		for one := range strings.SplitSeq(s, ",") {
			if one != stateRunning && one != statePaused {
				return q, badQuery("state", "use running or paused", one)
			}
			q.states = append(q.states, one)
		}
	}
	if len(q.states) == 0 {
		q.states = []string{stateRunning, statePaused}
	}
	q.template, q.page = v.Get("template"), v.Get("nextToken")
	if q.page != "" && !session.ValidID(q.page) {
		return q, badQuery("nextToken", "give what the page before returned", q.page)
	}
	if s := v.Get("startedAfter"); s != "" {
		if q.after, err = time.Parse(time.RFC3339, s); err != nil {
			return q, badQuery("startedAfter", "write a time as 2026-01-02T15:04:05Z", s)
		}
	}
	switch s := v.Get("order"); s {
	case "", "desc":
	case "asc":
		q.oldest = true
	default:
		return q, badQuery("order", "use asc or desc", s)
	}
	q.limit = maxPage
	if s := v.Get("limit"); s != "" {
		if q.limit, err = strconv.Atoi(s); err != nil || q.limit < 1 || q.limit > maxPage {
			return q, badQuery("limit", fmt.Sprintf("use 1 to %d", maxPage), s)
		}
	}
	return q, nil
}

// readMetadataQuery reads "name=value&…". SDKs encode names and values once more for themselves.
func readMetadataQuery(s string) (map[string]string, error) {
	pairs, err := url.ParseQuery(s)
	if err != nil {
		return nil, badQuery("metadata", "write name=value&…, each part URL-encoded", s)
	}
	out := make(map[string]string, len(pairs))
	for k, vs := range pairs {
		out[plain(k)] = plain(vs[len(vs)-1])
	}
	return out, nil
}

func plain(s string) string {
	if p, err := url.PathUnescape(s); err == nil {
		return p
	}
	return s
}

// list gives a page, and where the next begins if there is one. What the store cannot select by is
// left out here, so that it is asked until the page is full.
func (s *Sandboxes) list(ctx context.Context, project string, q listQuery) (page []*control.Session, next string, err error) {
	f := control.Filter{
		Phases: []string{string(session.Running), string(session.Suspended)},
		Labels: withMetadata(map[string]string{labelSandbox: "1"}, q.metadata),
		Limit:  scanned, Newest: !q.oldest, Page: q.page,
	}
	for {
		got, more, err := s.control.List(ctx, project, f)
		if err != nil {
			return nil, "", err
		}
		for i, one := range got {
			if !q.takes(one) {
				continue
			}
			if page = append(page, one); q.limit > 0 && len(page) == q.limit {
				if i < len(got)-1 || more != "" {
					next = one.ID
				}
				return page, next, nil
			}
		}
		if more == "" {
			return page, "", nil
		}
		f.Page = more
	}
}

func (q *listQuery) takes(s *control.Session) bool {
	return !over(s) && slices.Contains(q.states, stateOf(s)) &&
		(q.template == "" || q.template == s.Labels[labelTemplate] || q.template == s.Labels[labelAlias]) &&
		!started(s).Before(q.after)
}

// checkQuery refuses parameters that nobody reads.
func checkQuery(r *http.Request, known ...string) error {
	for k := range r.URL.Query() {
		if !slices.Contains(known, k) {
			return errdefs.Userf(errdefs.InvalidArgument, "parameter "+Clip(k), "leave it out", "is not known here, and is not ignored")
		}
	}
	return nil
}

func badQuery(name, remedy, value string) error {
	return errdefs.Userf(errdefs.InvalidArgument, "parameter "+name, remedy, "%q cannot be read", Clip(value))
}
