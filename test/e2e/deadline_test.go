package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// TestDeadlines: a session ends at its deadline though its command goes on, unless its client moved it.
func TestDeadlines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience(2*time.Minute))
	defer cancel()
	made, err := shared.c.Sessions.Create(ctx, &dsecv1.CreateRequest{Session: &dsecv1.NewSession{Count: 2, LifetimeMs: 1500, AtDeadline: "suspend"}})
	if err != nil {
		t.Fatal(dsec.AsError(err))
	}
	frozen, moved := made.GetResults()[0].GetSession(), made.GetResults()[1].GetSession()
	t.Cleanup(func() {
		ids := []string{frozen.GetId(), moved.GetId()}
		if _, err := shared.c.Stop(context.Background(), &dsec.Selector{Ids: ids}, "end of the test"); err != nil {
			t.Error(err)
		}
	})
	if left := time.Until(frozen.GetDeadline().AsTime()); frozen.GetAtDeadline() != "suspend" || frozen.GetLifetimeMs() != 1500 || left > 1500*time.Millisecond {
		t.Errorf("%v in %s", frozen, left)
	}
	run := &dsecv1.RunRequest{SessionId: frozen.GetId(), Command: &dsecv1.Command{Script: "sleep 1000", Background: true}}
	if _, err := shared.c.Execs.Run(ctx, run); err != nil {
		t.Fatal(dsec.AsError(err))
	}
	set := func(q *dsecv1.SetDeadlineRequest) *dsecv1.Session {
		t.Helper()
		q.SessionId = moved.GetId()
		got, err := shared.c.Sessions.SetDeadline(ctx, q)
		if err != nil {
			t.Fatal(dsec.AsError(err))
		}
		return got.GetSession()
	}
	if s := set(&dsecv1.SetDeadlineRequest{LifetimeMs: 3_600_000, AtDeadline: "stop"}); time.Until(s.GetDeadline().AsTime()) < time.Hour-time.Minute || s.GetAtDeadline() != "stop" {
		t.Errorf("%v", s)
	}
	wait := func(id, phase string) *dsecv1.Session {
		t.Helper()
		got, err := shared.c.Sessions.Wait(ctx, &dsecv1.WaitRequest{SessionId: id, Until: []string{phase}})
		if err != nil {
			t.Fatal(dsec.AsError(err))
		}
		return got.GetSession()
	}
	wait(frozen.GetId(), "SUSPENDED")
	if got := wait(moved.GetId(), "RUNNING"); got.GetPhase() != "RUNNING" {
		t.Fatalf("%v", got)
	}
	set(&dsecv1.SetDeadlineRequest{LifetimeMs: 1, Extend: true})
	set(&dsecv1.SetDeadlineRequest{LifetimeMs: 1})
	if got := wait(moved.GetId(), "COMPLETED"); got.GetPhase() != "COMPLETED" || got.GetError() != nil {
		t.Errorf("%v", got)
	}
	if _, err := shared.c.Sessions.SetDeadline(ctx, &dsecv1.SetDeadlineRequest{SessionId: frozen.GetId(), LifetimeMs: -1}); !strings.Contains(fmt.Sprint(dsec.AsError(err)), "lifetime_ms") {
		t.Errorf("a negative lifetime: %v", err)
	}
}
