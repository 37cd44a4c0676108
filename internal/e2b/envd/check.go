package envd

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// guestAPI is a sandbox's guest.
type guestAPI = guestclient.API

// Limits of requests.
const (
	maxText    = 768 << 10 // bytes of a command and its environment: one frame to the guest
	maxEnvVars = 1024
	maxTag     = 256
	maxFiles   = 10_000   // of one upload
	maxBody    = 64 << 30 // bytes of one upload that is compressed, unpacked
	maxTimeout = 30 * 24 * time.Hour
)

// bad refuses a part of a request.
func bad(object, remedy, format string, args ...any) error {
	return errdefs.Userf(errdefs.InvalidArgument, object, remedy, format, args...)
}

// utf8Text makes s fit for JSON.
func utf8Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// header gives a header of the RPC.
func header(ctx context.Context, name string) string {
	info, ok := connect.CallInfoForServerContext(ctx)
	if !ok {
		return ""
	}
	return info.RequestHeader().Get(name)
}

// userOf gives the user whom an RPC names as its basic authorization has it: without a password,
// for it proves nothing. Empty: the guest's default.
func userOf(ctx context.Context) (string, error) {
	scheme, encoded, _ := strings.Cut(header(ctx, "Authorization"), " ")
	if !strings.EqualFold(scheme, "basic") || len(encoded) > 256 {
		return sandboxOf(ctx).User, nil // it is not about a user
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		return "", errdefs.Userf(errdefs.Unauthenticated, "header Authorization", "send the user as Basic base64(user:)", "it is not base64")
	}
	user, _, _ := strings.Cut(string(raw), ":")
	return user, checkUser(user)
}

func checkUser(user string) error {
	ok := len(user) <= 32
	for i := 0; i < len(user) && ok; i++ {
		c := user[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
	}
	if !ok {
		return errdefs.Userf(errdefs.Unauthenticated, "user "+e2b.Clip(user), "name a user of the sandbox", "that is no user's name")
	}
	return nil
}

// checkPath checks a path. Where it begins and leads is decided in the box.
func checkPath(name, path string) error {
	switch {
	case len(path) > guestproto.MaxPath-1:
		return bad(name, "use a shorter path", "it has %d bytes", len(path))
	case strings.IndexByte(path, 0) >= 0:
		return bad(name, "remove the NUL byte", "it holds a NUL byte")
	case path != "" && path[0] == '~' && path != "~" && !strings.HasPrefix(path, "~/"):
		return bad(name+" "+e2b.Clip(path), "write ~/…, or the absolute path", "other users' homes are not found by name")
	}
	return nil
}

// onBehalf makes file operations act for user, and know of metadata.
func onBehalf(ctx context.Context, user string) context.Context {
	return guestclient.OnBehalf(ctx, guestclient.Behalf{User: user, AttrPrefix: metadataAttr})
}

// orHome is a path, and the user's home for none.
func orHome(path string) string {
	if path == "" {
		return "~"
	}
	return path
}

func checkEnv(env map[string]string) error {
	if len(env) > maxEnvVars {
		return bad("process.envs", fmt.Sprintf("give at most %d", maxEnvVars), "there are %d variables", len(env))
	}
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return bad("process.envs "+e2b.Clip(k), "leave out '=' in names and NUL bytes", "it cannot be a variable")
		}
	}
	return nil
}
