package dockerfile

import (
	"strings"
	"testing"
)

// TestValuesStayOutOfLogs: what a log shows of an ENV is its names.
func TestValuesStayOutOfLogs(t *testing.T) {
	plan, err := Parse([]byte("FROM a.example/x\nENV TOKEN=hunter2 OTHER=hunter3\nENV OLD hunter4\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"line 2: ENV TOKEN OTHER", "line 3: ENV OLD"} {
		if s := plan.Steps[i]; s.Label != want || !strings.Contains(strings.Join(s.Env, " "), "hunter") {
			t.Errorf("%+v", s)
		}
	}
}
