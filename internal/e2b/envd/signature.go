package envd

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// The two uses that a URL can be signed for.
const (
	opRead  = "read"
	opWrite = "write"
)

// fileQuery is what the query of /files may say.
type fileQuery struct {
	path, user string
	hasPath    bool
}

// readQuery reads the query and lets those in who show the sandbox's token, or a signature made with it.
func readQuery(r *http.Request, s *Sandbox, op string) (q fileQuery, err error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, bad("query", "encode it as a form", "it cannot be read")
	}
	for k, v := range values {
		switch k {
		case "path", "username", "signature", "signature_expiration":
		default:
			return q, bad("query "+e2b.Clip(k), "use path, username, signature and signature_expiration", "nobody reads it")
		}
		if len(v) > 1 {
			return q, bad("query "+k, "give it once", "it is given %d times", len(v))
		}
	}
	q.path, q.user, q.hasPath = values.Get("path"), values.Get("username"), values.Has("path")
	if token := r.Header.Get(headerToken); token != "" {
		if !tokenFits(s, token) {
			return q, unauthenticated(s)
		}
	} else if err := checkSignature(values, q, s.Token, op, time.Now()); err != nil {
		return q, err
	}
	if err := checkPath("path", q.path); err != nil {
		return q, err
	}
	return q, checkUser(q.user)
}

// Signed tells whether a request for a file is one that a signature allows, made with the token.
func Signed(r *http.Request, token string) bool {
	op := opRead
	if r.Method == http.MethodPost {
		op = opWrite
	}
	if r.URL.Path != "/files" || r.Header.Get(headerToken) != "" {
		return false
	}
	_, err := readQuery(r, &Sandbox{Token: token}, op)
	return err == nil
}

// sign gives the signature of a use of a file. An expiry of "" is none.
func sign(path, op, user, token, expiry string) string {
	text := path + ":" + op + ":" + user + ":" + token
	if expiry != "" {
		text += ":" + expiry
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// checkSignature tells whether a signed URL allows a use now.
func checkSignature(values url.Values, q fileQuery, token, op string, now time.Time) error {
	refuse := func(remedy, why string) error {
		return errdefs.Userf(errdefs.Unauthenticated, "signature", remedy, "%s", why)
	}
	signature := values.Get("signature")
	if signature == "" {
		return refuse("send "+headerToken+", or sign the URL", "there is none, and no access token either")
	}
	expiry := ""
	if values.Has("signature_expiration") {
		n, err := strconv.ParseInt(values.Get("signature_expiration"), 10, 64)
		if err != nil {
			return refuse("give signature_expiration in seconds since 1970", "its expiry is not a number")
		}
		if n < now.Unix() {
			return refuse("sign the URL anew", "it has expired")
		}
		expiry = strconv.FormatInt(n, 10)
	}
	if subtle.ConstantTimeCompare([]byte(signature), []byte(sign(q.path, op, q.user, token, expiry))) != 1 {
		return refuse("sign path, use, user and expiry with the sandbox's access token", "it is not right for this request")
	}
	return nil
}
