package api

import (
	"math"
	"net/http"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Facade serves another product's wire on the gateway's port. The gateway keeps what is common
// to both: keys, rates, draining, patience with bodies.
type Facade interface {
	// Route tells whether r is the facade's. One that is not keyed proves its right to the facade.
	Route(r *http.Request) FacadeRoute
	// Serve answers r.
	Serve(w http.ResponseWriter, r *http.Request, c FacadeCaller)
	// Refuse answers a request that the gateway does not let through.
	Refuse(w http.ResponseWriter, err error)
}

// FacadeCaller is who sent a request, as far as the gateway knows.
type FacadeCaller struct {
	Project  string // of the key, if the route is keyed
	Operator bool
	// Allow takes a request from the rate of a project to which the caller has proven its right by other
	// means than a key; of no project it is the rate of strangers at the caller's address. A facade
	// calls it for every request that is not keyed.
	Allow func(project string) error
}

// FacadeRoute says what a request is to a facade.
type FacadeRoute struct {
	Mine       bool // the facade serves it
	Keyed      bool // after an API key was accepted
	MakesBoxes bool // refused while the server drains
	Streamed   bool // its body is passed on as it comes; others are held whole, and counted
	Proxied    bool // its body and its answer are a box's own, and may pause for as long as that likes
	// Message bounds what is held of a body that is messages one after the other, each perhaps compressed: the
	// largest, unpacked. 0: the body is one plain message.
	Message int64
}

// held is how much of a body of the route is in memory at a time.
func (f FacadeRoute) held(h http.Header) held {
	switch {
	case f.Message > 0:
		return held{most: f.Message, packed: packed(h), pauses: f.Proxied}
	case f.Streamed || f.Proxied:
		return held{pauses: f.Proxied}
	}
	return held{most: math.MaxInt64}
}

// toFacade serves r if it is the facade's.
func (a *API) toFacade(w http.ResponseWriter, r *http.Request) bool {
	f := a.cfg.Facade
	if f == nil {
		return false
	}
	route := f.Route(r)
	if !route.Mine {
		return false
	}
	m := a.metrics.of("e2b")
	start := time.Now()
	m.running.Inc()
	defer func() { m.running.Dec() }()
	c, err := a.admitToFacade(r, route)
	if err != nil {
		e := a.typed(r.Context(), err)
		m.done(codeOf(e.Reason), start)
		f.Refuse(w, e)
		return true
	}
	told := &toldStatus{ResponseWriter: w}
	w = told
	if !route.Proxied || route.Message > 0 {
		r = r.WithContext(r.Context()) // a copy: see ServeHTTP
		defer a.guardBody(w, r, route.held(r.Header))()
	}
	if !route.Proxied {
		w = newAnswer(w)
	}
	f.Serve(w, r, FacadeCaller{c.project, c.operator, func(project string) error {
		if project == "" {
			return a.allowStranger(r)
		}
		return a.limiter.allow("project " + project)
	}})
	m.done(told.code(), start)
	return true
}

// toldStatus remembers which status was answered.
type toldStatus struct {
	http.ResponseWriter
	status int
}

func (t *toldStatus) WriteHeader(status int) {
	if t.status == 0 || t.status < 200 {
		t.status = status
	}
	t.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (t *toldStatus) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// code is the status in the words of the metrics.
func (t *toldStatus) code() connect.Code {
	switch {
	case t.status < 400:
		return codeOK
	case t.status == http.StatusUnauthorized:
		return connect.CodeUnauthenticated
	case t.status == http.StatusForbidden:
		return connect.CodePermissionDenied
	case t.status == http.StatusNotFound:
		return connect.CodeNotFound
	case t.status == http.StatusConflict:
		return connect.CodeFailedPrecondition
	case t.status == http.StatusTooManyRequests, t.status == http.StatusRequestEntityTooLarge, t.status == http.StatusInsufficientStorage:
		return connect.CodeResourceExhausted
	case t.status == http.StatusBadGateway, t.status == http.StatusServiceUnavailable:
		return connect.CodeUnavailable
	case t.status == http.StatusGatewayTimeout:
		return connect.CodeDeadlineExceeded
	case t.status < 500:
		return connect.CodeInvalidArgument
	}
	return connect.CodeInternal
}

func (a *API) admitToFacade(r *http.Request, route FacadeRoute) (caller, error) {
	if route.Keyed {
		c, err := a.admit(r)
		if err != nil || !route.MakesBoxes || !a.refusing() {
			return c, err
		}
		return c, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "server", "it is draining and makes no sessions")
	}
	if !a.ready.Load() {
		return caller{}, errStarting()
	}
	return caller{}, nil
}
