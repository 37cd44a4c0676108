package api

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/session"
)

// Limits of requests.
const (
	maxSessions   = 32_768
	maxCode       = 64 << 20
	maxStdinData  = guestproto.MaxStdin
	maxStdinWrite = 4 << 20
	maxText       = 768 << 10 // bytes of arguments, script and environment together: one frame to the guest
	maxPath       = guestproto.MaxPath
	maxEnvVars    = 1024
	maxEnvBytes   = 1 << 20
	maxSessionEnv = 64 << 10  // it is stored and shown with every session
	maxSecrets    = 256 << 10 // in one message to the guest, with the environment
	maxStored     = 64 << 20  // bytes of environment and labels of all sessions of a create
	maxLabels     = 64
	maxOutput     = guestproto.MaxOutput
	maxTimeoutMs  = 30 * 24 * 3600 * 1000
)

// bad refuses a field of a request. The message follows "field …: ".
func bad(field, remedy, format string, args ...any) error {
	return errdefs.Userf(errdefs.InvalidArgument, "field "+field, remedy, format, args...)
}

// clip bounds and cleans what a caller sent before it is said back.
func clip(s string) string {
	const most = 120
	s = utf8Text(s)
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// utf8Text makes s fit for a protobuf string.
func utf8Text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func checkSession(id string) error {
	if session.ValidID(id) {
		return nil
	}
	if id == "" {
		return bad("session_id", "give the id that Create answered", "is missing")
	}
	return bad("session_id", "give the id that Create answered, 26 characters [a-z0-9]", "%q is not a session's id", clip(id))
}

func checkProject(field, p string) error {
	if ok := len(p) > 0 && len(p) <= 63 && p[0] != '-' && p[len(p)-1] != '-'; ok {
		for i := 0; i < len(p) && ok; i++ {
			ok = p[i] == '-' || p[i] >= 'a' && p[i] <= 'z' || p[i] >= '0' && p[i] <= '9'
		}
		if ok {
			return nil
		}
	}
	return errdefs.Userf(errdefs.InvalidArgument, field, "use 1 to 63 characters [a-z0-9-]", "%q is not a project's name", clip(p))
}

// opID takes the client's operation id, or makes one.
func opID(given string) (id string, made bool, err error) {
	if given == "" {
		return randomID(), true, nil
	}
	return given, false, checkOpID(given)
}

func checkOpID(id string) error {
	ok := len(id) > 0 && len(id) <= 64
	for i := 0; i < len(id) && ok; i++ {
		ok = isWord(id[i])
	}
	if !ok {
		return bad("op_id", "use 1 to 64 characters [A-Za-z0-9_-]", "%q is not an operation's id", clip(id))
	}
	return nil
}

// checkText bounds a printable string; empty is allowed.
func checkText(field, s string, most int) error {
	if len(s) > most {
		return bad(field, fmt.Sprintf("use at most %d bytes", most), "has %d bytes", len(s))
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return bad(field, "use printable characters", "%q holds a character that is not printable", clip(s))
		}
	}
	return nil
}

func checkEnv(field string, env map[string]string, most int) error {
	if len(env) > maxEnvVars {
		return bad(field, fmt.Sprintf("give at most %d variables", maxEnvVars), "has %d variables", len(env))
	}
	total := 0
	for k, v := range env {
		if err := checkVar(field, k, v); err != nil {
			return err
		}
		total += len(k) + len(v) + 2
	}
	if total > most {
		return bad(field, fmt.Sprintf("keep names and values within %d bytes together, and put larger data into files", most), "has %d bytes", total)
	}
	return nil
}

// checkVar never says the value: it may be a secret.
func checkVar(field, k, v string) error {
	ok := k != "" && len(k) <= 256
	for i := 0; i < len(k) && ok; i++ {
		ok = k[i] != '=' && k[i] != 0
	}
	if !ok {
		return bad(field, "use 1 to 256 bytes without '=' and NUL", "%q is not a variable's name", clip(k))
	}
	if strings.IndexByte(v, 0) >= 0 {
		return bad(fmt.Sprintf("%s[%q]", field, clip(k)), "put binary data into a file", "holds a NUL byte")
	}
	return nil
}

func checkLabels(field string, labels map[string]string) error {
	if len(labels) > maxLabels {
		return bad(field, fmt.Sprintf("give at most %d labels", maxLabels), "has %d labels", len(labels))
	}
	for k, v := range labels {
		ok := k != "" && len(k) <= 63
		for i := 0; i < len(k) && ok; i++ {
			ok = isWord(k[i]) || k[i] == '.' || k[i] == '/'
		}
		if !ok {
			return bad(field, "use 1 to 63 characters [A-Za-z0-9_./-]", "%q is not a label's name", clip(k))
		}
		if err := checkText(fmt.Sprintf("%s[%q]", field, k), v, 255); err != nil {
			return err
		}
	}
	return nil
}

// checkPath takes a path or its twin for bytes, and makes a relative one absolute
// below /workspace, where commands start too; ~ is the user's home, which the
// guest knows. Where a path leads is decided inside the box.
func checkPath(field, path string, raw []byte) (string, error) {
	if len(raw) > 0 {
		if path != "" {
			return "", bad(field, "give "+field+" or "+field+"_bytes", "is given twice")
		}
		path = string(raw)
	}
	switch {
	case path == "":
		return "", bad(field, "give an absolute path, or one below /workspace", "is missing")
	case len(path) > maxPath:
		return "", bad(field, fmt.Sprintf("use at most %d bytes", maxPath), "has %d bytes", len(path))
	case strings.IndexByte(path, 0) >= 0:
		return "", bad(field, "remove the NUL byte", "holds a NUL byte")
	case path[0] != '/' && path != "~" && !strings.HasPrefix(path, "~/"):
		path = "/workspace/" + path
	}
	return path, nil
}

func checkUser(field, user string) error {
	ok := len(user) <= 32
	for i := 0; i < len(user) && ok; i++ {
		ok = isWord(user[i]) || user[i] == '.'
	}
	if !ok {
		return bad(field, "give a name or number of the box's passwd, such as root", "%q is not a user", clip(user))
	}
	return nil
}

func checkPhases(field string, given []string) error {
	if len(given) > len(session.Phases) {
		return bad(field, "name each phase once", "has %d phases of %d", len(given), len(session.Phases))
	}
	for i, p := range given {
		if !session.Phase(p).Valid() {
			return bad(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("use one of %v", session.Phases), "%q is not a phase", clip(p))
		}
	}
	return nil
}
