package guest

import (
	"errors"
	"io"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// fileOp remembers the answer of a file operation with an id.
type fileOp struct {
	id     string
	digest string
	done   chan struct{}
	reply  []byte
	err    *guestproto.WireError
}

// maxReply bounds what is kept of an answer: the worker may be the agent's by now,
// and honest ones hold two paths at most.
const maxReply = 16 << 10

func (f *fileOp) settled() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func (f *fileOp) forget() {}

// file serves a file stream by the worker; with an op id, once.
func (s *Server) file(st *mux.Stream, body []byte) error {
	var r guestproto.FileRequest
	if err := guestproto.Unmarshal(body, &r); err != nil {
		return badRequest(err)
	}
	set, werr := s.settings()
	if werr != nil {
		return werr
	}
	if r.User == "" {
		r.User = set.User
	}
	if r.OpID == "" {
		_, err := s.proxy(st, &r, false)
		return err
	}
	if !validOpID(r.OpID) {
		return userError("invalid_argument", "op_id", "not 1 to 64 characters [A-Za-z0-9_-]", "send a valid op id")
	}
	made := &fileOp{id: r.OpID, digest: string(r.Digest), done: make(chan struct{})}
	f, created, gone, full := s.files.add(r.OpID, made)
	switch {
	case gone:
		return userError("op_unknown", "op "+r.OpID, "it ran, but its result is no longer kept", "look at the file, and use a new op id")
	case full:
		return limitError("rate_limited", "box", "too many file operations are running", "wait for some to end")
	case !created && f.digest != made.digest:
		return userError("idempotency_clash", "op "+r.OpID, "another request has this id", "use a new op id")
	case !created:
		return s.repeat(st, f)
	}
	defer close(f.done)
	reply, err := s.proxy(st, &r, true)
	var w *guestproto.WireError
	switch {
	case err == nil && len(reply) > maxReply:
		f.err = policyError("file worker", "its answer is too long to be kept")
	case err == nil:
		f.reply = reply
	case errors.As(err, &w):
		f.err = w
	default: // the upload broke off: nothing was done, it may be sent again
		f.err = userError("canceled", "op "+r.OpID, "the connection was lost before the whole request had come", "send it again")
		s.files.drop(r.OpID)
	}
	return err
}

// repeat answers a request whose op ran, or runs.
func (s *Server) repeat(st *mux.Stream, f *fileOp) error {
	select {
	case <-f.done:
	case <-st.Gone():
		return nil
	}
	if f.err != nil {
		return f.err
	}
	return st.Send(mux.Frame{Payload: f.reply}, true)
}

// proxy carries a stream's frames to the worker and back, and gives the last
// message. With finish, an operation whose request is complete goes on when the client is gone.
func (s *Server) proxy(st *mux.Stream, r *guestproto.FileRequest, finish bool) (last []byte, err error) {
	run, release, err := s.useWorker()
	if err != nil {
		return nil, err
	}
	defer release()
	up, err := run.conn.Open(st.Kind(), guestproto.Marshal(nil, r), false)
	if err != nil {
		return nil, run.lost()
	}
	defer up.Close()
	go func() {
		err := carry(up, st)
		complete := err == nil
		if !complete {
			up.Abort(err)
			return
		}
		if finish {
			return
		}
		select { // nobody waits any more: the worker need not go on
		case <-st.Gone():
			up.Abort(mux.ErrClosed)
		case <-up.Finished():
		}
	}()
	for {
		f, err := up.Recv()
		switch {
		case err == io.EOF:
			if err := st.CloseSend(); err != nil && !finish { // with finish it is done, whether the client has waited for the end or not
				return nil, err
			}
			return last, nil
		case err != nil:
			return nil, proxyError(run, st, err)
		}
		if !f.Data {
			last = f.Payload
		}
		if err := st.Send(f, false); err != nil && !finish {
			return nil, err
		}
	}
}

// carry copies the request's frames until the client's end.
func carry(to, from *mux.Stream) error {
	for {
		f, err := from.Recv()
		if err == io.EOF {
			return ignoreEnded(to.CloseSend())
		}
		if err != nil {
			return err
		}
		if err := to.Send(f, false); err != nil {
			return ignoreEnded(err)
		}
	}
}

// ignoreEnded: a worker that answers before the end of the request has ended the stream.
func ignoreEnded(error) error { return nil }

func proxyError(run *workerRun, st *mux.Stream, err error) error {
	if w, ok := errors.AsType[*guestproto.WireError](err); ok {
		if w.Class != "user" && w.Class != "limit" {
			w.Class = "policy"
		}
		return w
	}
	select {
	case <-st.Gone():
		return err
	default:
	}
	if run.conn.Err() == nil {
		return err
	}
	return run.lost()
}
