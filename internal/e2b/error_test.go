package e2b

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// TestFilesOfTheServerStayInItsLog: a client is told what failed, the log where.
func TestFilesOfTheServerStayInItsLog(t *testing.T) {
	_, cause := os.Open("/var/lib/dsec/builds/b.json")
	for _, reason := range []errdefs.Reason{errdefs.Internal, errdefs.Unavailable} {
		var log bytes.Buffer
		rec := httptest.NewRecorder()
		Answered(slog.New(slog.NewTextHandler(&log, nil)), func(http.ResponseWriter, *http.Request) error {
			return errdefs.Infraf(errdefs.ScopeNode, reason, "build b", "its record cannot be kept: %w", cause)
		})(rec, httptest.NewRequest("GET", "/", nil))
		if s := rec.Body.String(); strings.Contains(s, "/var/lib") || !strings.Contains(s, "build b: its record cannot be kept") {
			t.Errorf("told: %s", s)
		}
		if !strings.Contains(log.String(), "/var/lib/dsec/builds/b.json") {
			t.Errorf("logged: %s", log.String())
		}
	}
}
