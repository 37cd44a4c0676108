package api

import (
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
)

// Decisions are told in any order: one that is older than the newest that was shown is news, too.
func TestFollowedLogMissesNothing(t *testing.T) {
	at := func(seconds int64, name string) egress.Decision {
		return egress.Decision{Time: time.Unix(seconds, 0), Kind: egress.Query, Name: name}
	}
	shown := at(5, "shown.test")
	again := shown
	again.Time = again.Time.UTC() // as it comes out of the record
	news := make(chan egress.Decision, 4)
	for _, d := range []egress.Decision{again, at(5, "same-moment.test"), at(4, "late.test"), at(6, "new.test")} {
		news <- d
	}
	close(news)
	got := ""
	for d := range unseen([]egress.Decision{shown}, news) {
		got += d.Name + " "
	}
	if want := "same-moment.test late.test new.test "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
