package dsec

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// Classes of an Error: whose fault it is.
const (
	ClassUser           = "user"           // the request is wrong
	ClassLimit          = "limit"          // a declared limit was reached
	ClassPolicy         = "policy"         // forbidden, or the box was tampered with
	ClassInfrastructure = "infrastructure" // the platform failed, or cannot be reached
)

// Error is every failure that this package reports. Fields are those of
// dsecv1.Error; reasons are stable and can be switched on.
type Error struct {
	Class, Reason, Scope, Object, Message, Remedy string
	Retryable                                     bool
	// RetryAfter is how long the server asks to wait; zero: it did not say.
	RetryAfter time.Duration
	// unreached: the request never arrived, so that any call may be repeated.
	unreached bool
	// lost: the connection broke; the call may have had its effect.
	lost  bool
	cause error
}

func (e *Error) Error() string {
	s := e.Message
	if e.Object != "" {
		s = e.Object + ": " + s
	}
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// Unwrap gives the local cause, such as context.Canceled.
func (e *Error) Unwrap() error { return e.cause }

// Is makes the server's verdict on an ended call equal to the local one: the two
// race when a deadline passes.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Reason == "timed_out" || target == context.Canceled && e.Reason == "canceled"
}

// IsReason tells whether err is an *Error with that reason.
func IsReason(err error, reason string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Reason == reason
}

// FromWire converts an error that is part of an answer; nil stays nil.
func FromWire(w *dsecv1.Error) *Error {
	if w == nil {
		return nil
	}
	return &Error{Class: w.Class, Reason: w.Reason, Scope: w.Scope, Object: w.Object, Message: w.Message, Remedy: w.Remedy, Retryable: w.Retryable}
}

// AsError converts what a service of Client returned. Nil stays nil; what is
// not the server's verdict is a lost or refused connection.
func AsError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		for _, d := range ce.Details() {
			var w dsecv1.Error
			if d.Type == "dsec.v1.Error" && proto.Unmarshal(d.Value, &w) == nil {
				e := FromWire(&w)
				e.cause = err
				return e
			}
		}
		if ce.IsRemote() {
			return &Error{Class: ClassInfrastructure, Reason: "internal", Scope: "platform", Message: ce.Message(), cause: err}
		}
	}
	return transportError(err)
}

func transportError(err error) *Error {
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Class: ClassUser, Reason: "canceled", Scope: "platform", Message: "the call was cancelled", Remedy: "call again", cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Class: ClassUser, Reason: "timed_out", Scope: "platform", Message: "the call's deadline passed", Remedy: "give it more time", Retryable: true, cause: err}
	}
	e := &Error{Class: ClassInfrastructure, Reason: "unavailable", Scope: "platform", Message: "the connection to the server failed: " + err.Error(), Remedy: "check that the server runs and that DSEC_URL names it", Retryable: true, lost: true, cause: err}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		e.unreached = true
	}
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		e.Class, e.Reason, e.Retryable, e.lost, e.unreached = ClassUser, "forbidden", false, false, false
		e.Remedy = "use an API key, or run as root to use the socket"
	}
	return e
}

// errorBody is a Connect error as JSON, which plain HTTP answers carry too.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Details []struct {
		Type  string          `json:"type"`
		Debug json.RawMessage `json:"debug"`
		Value string          `json:"value"`
	} `json:"details"`
}

// responseError reads the error of a plain HTTP answer.
func responseError(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body errorBody
	if json.Unmarshal(data, &body) == nil {
		for _, d := range body.Details {
			var w dsecv1.Error
			if raw, err := connect.DecodeBinaryHeader(d.Value); err == nil && d.Type == "dsec.v1.Error" && proto.Unmarshal(raw, &w) == nil {
				e := FromWire(&w)
				if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
					e.RetryAfter = time.Duration(s) * time.Second
				}
				return e
			}
		}
	}
	return &Error{Class: ClassInfrastructure, Reason: "internal", Scope: "platform", Retryable: resp.StatusCode >= 500,
		Message: "the server answered " + resp.Status, Remedy: "check that DSEC_URL names a DSec server"}
}
