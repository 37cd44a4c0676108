package trail

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
)

func open(t *testing.T, dir string, keep int64) *Trail {
	t.Helper()
	tr, err := Open(dir, keep, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func decision(project, session string, i int, v egress.Verdict) egress.Decision {
	return egress.Decision{Time: time.Unix(int64(1000+i), 0).UTC(), Project: project, Session: session, Kind: egress.Connect, Name: fmt.Sprintf("n%d.test", i), Verdict: v}
}

func TestFindAfterRestart(t *testing.T) {
	dir := t.TempDir()
	tr := open(t, dir, 0)
	for i := range 10 {
		v := egress.Allow
		if i%2 == 1 {
			v = egress.Deny
		}
		tr.Record(decision("p", fmt.Sprintf("s%d", i%3), i, v))
		tr.Record(decision("other", "s0", i, v))
	}
	_ = tr.Close()
	// A daemon that was killed in the middle of a write leaves a line that is not whole.
	list, _ := segments(filepath.Join(dir, "p"))
	f, err := os.OpenFile(list[len(list)-1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"time":"20`)
	_ = f.Close()
	tr = open(t, dir, 0)
	tr.Record(decision("p", "s9", 10, egress.Allow))
	for _, c := range []struct {
		f    Filter
		want string
	}{
		{Filter{Project: "p"}, "0 1 2 3 4 5 6 7 8 9 10"},
		{Filter{Project: "p", Session: "s1"}, "1 4 7"},
		{Filter{Project: "p", Verdict: egress.Deny, Since: time.Unix(1003, 0)}, "3 5 7 9"},
		{Filter{Project: "p", Limit: 2}, "9 10"},
		{Filter{Project: "nobody"}, ""},
	} {
		found, err := tr.Find(t.Context(), c.f)
		got := ""
		for i, d := range found {
			if i > 0 {
				got += " "
			}
			got += fmt.Sprint(d.Time.Unix() - 1000)
		}
		if err != nil || got != c.want {
			t.Errorf("%+v: %q, %v, want %q", c.f, got, err, c.want)
		}
	}
}

func TestFollow(t *testing.T) {
	tr := open(t, t.TempDir(), 0)
	ctx, cancel := context.WithCancel(t.Context())
	ch := tr.Follow(ctx, Filter{Project: "p", Verdict: egress.Deny})
	tr.Record(decision("p", "s", 1, egress.Allow))
	tr.Record(decision("q", "s", 2, egress.Deny))
	tr.Record(decision("p", "s", 3, egress.Deny))
	if d := <-ch; d.Name != "n3.test" {
		t.Errorf("got %+v", d)
	}
	cancel()
	if _, ok := <-ch; ok {
		t.Error("the end of the context does not end it")
	}
	ch = tr.Follow(t.Context(), Filter{Project: "p"})
	_ = tr.Close()
	if _, ok := <-ch; ok {
		t.Error("the end of the trail does not end it")
	}
}

// A project's record is bounded, whatever its boxes do.
func TestOldestGoFirst(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(dir, segmentName(time.Unix(int64(i), 0))), make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := trim(dir, 250); err != nil {
		t.Fatal(err)
	}
	left, _ := segments(dir)
	if len(left) != 2 || filepath.Base(left[1]) != segmentName(time.Unix(4, 0)) {
		t.Errorf("left %v", left)
	}
}
