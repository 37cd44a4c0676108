package tmpl

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// linkLife is how long an address for an upload is good.
const linkLife = time.Hour

// uploadLink tells whether the files of a hash are here, and where to put them, which SDKs do
// without their key: the address carries the right to it.
func (h *Handler) uploadLink(w http.ResponseWriter, r *http.Request) error {
	project, id, hash := caller(r).Project, r.PathValue("id"), r.PathValue("hash")
	t, err := h.builds.Get(project, id)
	if err != nil {
		return err
	}
	present, err := h.builds.HasUpload(project, hash)
	if err != nil {
		return err
	}
	expires := strconv.FormatInt(time.Now().Add(linkLife).Unix(), 10)
	q := url.Values{"project": {project}, "expires": {expires}, "signature": {h.sign(project, t.ID, hash, expires)}}
	u := url.URL{Scheme: "http", Host: r.Host, Path: "/templates/" + t.ID + "/files/" + hash, RawQuery: q.Encode()}
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		u.Scheme = "https"
	}
	e2b.WriteJSON(w, http.StatusCreated, map[string]any{"present": present, "url": u.String()})
	return nil
}

func (h *Handler) sign(parts ...string) string {
	m := hmac.New(sha256.New, h.key)
	for _, p := range parts {
		m.Write([]byte(p + "\x00"))
	}
	return hex.EncodeToString(m.Sum(nil))
}

func (h *Handler) upload(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	project, id, hash, expires := q.Get("project"), r.PathValue("id"), r.PathValue("hash"), q.Get("expires")
	until, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || !hmac.Equal([]byte(q.Get("signature")), []byte(h.sign(project, id, hash, expires))) || time.Now().Unix() > until {
		return errdefs.Userf(errdefs.Unauthenticated, "upload of "+hash, "ask for a new address: GET /templates/{id}/files/{hash}", "its signature is wrong or has expired")
	}
	if err := h.builds.Upload(r.Context(), project, hash, r.Body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
