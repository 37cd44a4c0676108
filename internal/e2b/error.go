package e2b

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// statuses is the one table from reasons to E2B's codes, which are HTTP statuses.
var statuses = map[errdefs.Reason]int{
	errdefs.InvalidArgument:  http.StatusBadRequest,
	errdefs.NotFound:         http.StatusNotFound,
	errdefs.AlreadyExists:    http.StatusConflict,
	errdefs.Conflict:         http.StatusConflict,
	errdefs.IdempotencyClash: http.StatusConflict,
	errdefs.OpUnknown:        http.StatusNotFound,
	errdefs.Unauthenticated:  http.StatusUnauthorized,
	errdefs.Forbidden:        http.StatusForbidden,
	errdefs.Unsupported:      http.StatusBadRequest, // SDKs take 5xx for the server's fault, and some try again
	errdefs.QueueFull:        http.StatusServiceUnavailable,
	errdefs.NodeFull:         http.StatusServiceUnavailable,
	errdefs.QuotaExceeded:    http.StatusTooManyRequests,
	errdefs.RateLimited:      http.StatusTooManyRequests,
	errdefs.TooLarge:         http.StatusRequestEntityTooLarge,
	errdefs.DiskFull:         http.StatusInsufficientStorage,
	errdefs.OutOfMemory:      http.StatusInsufficientStorage,
	errdefs.TimedOut:         http.StatusGatewayTimeout,
	errdefs.Canceled:         499,
	errdefs.BoxGone:          http.StatusNotFound,
	errdefs.BoxTampered:      http.StatusNotFound,
	errdefs.Unavailable:      http.StatusServiceUnavailable,
	errdefs.Internal:         http.StatusInternalServerError,
}

// Status is E2B's code for an error.
func Status(err error) int {
	e := errdefs.From(err)
	if e.Reason == errdefs.NodeFull && e.Class == errdefs.User { // it can never fit: coming again does not help
		return http.StatusBadRequest
	}
	if s, ok := statuses[e.Reason]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// WriteError answers in E2B's shape: {"code": N, "message": "…"}.
func WriteError(w http.ResponseWriter, err error) { WriteErrorAs(w, Status(err), errdefs.From(err)) }

// WriteErrorAs answers with another status than the table's.
func WriteErrorAs(w http.ResponseWriter, status int, e *errdefs.Error) {
	e = errdefs.Public(e)
	if (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) && e.Class != errdefs.User {
		w.Header().Set("Retry-After", "1")
	}
	WriteJSON(w, status, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, strings.ToValidUTF8(e.Error(), "\uFFFD")})
}

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that has gone needs no answer
}
