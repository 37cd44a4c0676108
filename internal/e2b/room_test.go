package e2b

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/sched"
	"github.com/dsec-platform/dsec/internal/template"
)

// TestRoom: what can never fit is the request's fault and is not asked for again, what does not fit now is; and who lacks a template learns how to get it.
func TestRoom(t *testing.T) {
	ledger, err := sched.NewLedger(sched.Demand{Memory: 1 << 30, CPU: 1}, sched.Ratios{})
	if err != nil {
		t.Fatal(err)
	}
	never := ledger.Admit(sched.Demand{Memory: 1 << 50})
	if err := ledger.Admit(sched.Demand{Memory: 1 << 29}); err != nil {
		t.Fatal(err)
	}
	later := ledger.Admit(sched.Demand{Memory: 1 << 30})
	of := &Resolved{Template: &template.Template{}, ID: "big"}
	for _, c := range []struct {
		err         error
		status      int
		again, says string
	}{
		{tooLarge(errdefs.From(never), of), 400, "", "field templateID: template big is too large for this server"},
		{never, 400, "", "can never fit"},
		{lackingTemplate(errdefs.Userf(errdefs.NotFound, "template x", "did you mean y?", "is not here"), "x"), 404, "", "did you mean y?"},
		{lackingTemplate(errdefs.Userf(errdefs.NotFound, "template "+interpreter, "build it", "is not here"), interpreter), 404, "", "docs/e2b.md"},
		{tooLarge(errdefs.From(later), of), 503, "1", "left to promise"},
	} {
		rec := httptest.NewRecorder()
		WriteError(rec, c.err)
		if rec.Code != c.status || rec.Header().Get("Retry-After") != c.again || !strings.Contains(rec.Body.String(), c.says) {
			t.Errorf("%v: %d, Retry-After %q: %s", c.err, rec.Code, rec.Header().Get("Retry-After"), rec.Body)
		}
	}
}

// TestLate: a create that took too long says what took so long.
func TestLate(t *testing.T) {
	plain := &Resolved{Template: &template.Template{}, ID: "t"}
	starts := &Resolved{Template: &template.Template{Start: template.StartCommand{Command: "sleep 100"}}, ID: "t"}
	starting := &errdefs.Error{Reason: errdefs.TimedOut, Class: errdefs.User, Cause: errors.Join(context.DeadlineExceeded, control.ErrStarting)}
	for _, c := range []struct {
		err    error
		of     *Resolved
		status int
		says   string
	}{
		{context.DeadlineExceeded, starts, 503, "there was no room for it"}, {starting, plain, 503, "it was not made within"}, {starting, starts, 504, "its start and ready commands took longer than"},
	} {
		if err := late(c.err, c.of, ""); Status(err) != c.status || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %d %v", c.err, Status(err), err)
		}
	}
}
