package e2b

import (
	"maps"
	"strings"

	"github.com/dsec-platform/dsec/internal/control"
)

// What the facade must know of a sandbox is kept in the session's labels, by which sessions can
// be found too. A user's metadata has a prefix, so that it collides with nothing.
const (
	metadataPrefix = "e2b/"

	labelSandbox    = "e2b.dsec/sandbox"  // "1": the facade made it
	labelTemplate   = "e2b.dsec/template" // templateID as answered
	labelAlias      = "e2b.dsec/alias"
	labelAutoResume = "e2b.dsec/auto-resume" // "1"
	labelInternet   = "e2b.dsec/internet"    // "true", "false"; absent: not said
	labelUser       = "e2b.dsec/user"        // of processes and files; absent: the session's
	labelWorkdir    = "e2b.dsec/workdir"     // where processes start; absent: the user's home
	labelPublic     = "e2b.dsec/public"      // "1": its ports need no token
)

func isSandbox(s *control.Session) bool { return s.Labels[labelSandbox] != "" }

func resumesByItself(s *control.Session) bool { return s.Labels[labelAutoResume] != "" }

// metadata gives a user's metadata of a session's labels.
func metadata(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if name, ok := strings.CutPrefix(k, metadataPrefix); ok {
			out[name] = v
		}
	}
	return out
}

// withMetadata adds a user's metadata to labels.
func withMetadata(labels, given map[string]string) map[string]string {
	out := maps.Clone(labels)
	for k, v := range given {
		out[metadataPrefix+k] = v
	}
	return out
}
