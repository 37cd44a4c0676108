package tmpl

import (
	"strings"
	"testing"
)

// TestValuesStayOutOfLogs: what a log shows of an ENV is its names.
func TestValuesStayOutOfLogs(t *testing.T) {
	s, err := (&Handler{}).step("p", 3, &stepBody{Type: "env", Args: []string{"TOKEN", "hunter2", "OTHER", "hunter3"}})
	if err != nil || s.Label != "step 3: ENV TOKEN OTHER" || len(s.Env) != 2 || !strings.Contains(s.Env[0], "hunter2") {
		t.Errorf("%+v, %v", s, err)
	}
}
