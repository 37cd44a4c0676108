package e2b

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// mine gives a sandbox of a project that has not ended.
func (s *Sandboxes) mine(ctx context.Context, project, id string) (*control.Session, error) {
	got, err := s.control.Get(ctx, project, id)
	if errors.Is(err, errdefs.ErrNotFound) || err == nil && (!isSandbox(got) || over(got)) {
		return nil, noSandbox(Clip(id))
	}
	return got, err
}

// asked gives the sandbox that a call of the control API is about.
func (f *Facade) asked(r *http.Request) (*control.Session, error) {
	return f.cfg.Sandboxes.mine(r.Context(), CallerOf(r.Context()).Project, r.PathValue("id"))
}

func (f *Facade) get(w http.ResponseWriter, r *http.Request) error {
	s, err := f.asked(r)
	if err != nil {
		return err
	}
	WriteJSON(w, http.StatusOK, f.detail(s))
	return nil
}

func (f *Facade) kill(w http.ResponseWriter, r *http.Request) error {
	s, err := f.asked(r)
	if err != nil {
		return err
	}
	// Begun, it goes on: an SDK that gives up must not leave a sandbox.
	ctx := context.WithoutCancel(r.Context())
	if err := first(f.cfg.Sandboxes.control.Stop(ctx, s.Project, control.Selector{IDs: []string{s.ID}}, "killed by its user")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// timeout moves the end to so many seconds from now, earlier or later.
func (f *Facade) timeout(w http.ResponseWriter, r *http.Request) error {
	return f.moveEnd(w, r, "timeout", -1, false)
}

// refresh moves the end to so many seconds from now, if that is later.
func (f *Facade) refresh(w http.ResponseWriter, r *http.Request) error {
	return f.moveEnd(w, r, "duration", timeoutV1, true)
}

// moveEnd reads one field of seconds; standard is for who does not send it, and below 0 it must be sent.
func (f *Facade) moveEnd(w http.ResponseWriter, r *http.Request, field string, standard int, extend bool) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	seconds, err := o.seconds(field)
	if err == nil {
		err = o.end()
	}
	if err != nil {
		return err
	}
	if seconds < 0 {
		seconds = standard
	}
	if seconds < 0 {
		return errdefs.Userf(errdefs.InvalidArgument, "field "+field, "give the seconds that the sandbox is to live from now", "is missing")
	}
	s, err := f.asked(r)
	if err != nil {
		return err
	}
	if err := f.live(r.Context(), s, seconds, extend); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// live sets how long a sandbox lives from now. For no time means that it ends at once, as at its time-out.
func (f *Facade) live(ctx context.Context, s *control.Session, seconds int, extend bool) error {
	d := control.Deadline{Lifetime: max(time.Duration(seconds)*time.Second, time.Nanosecond), Extend: extend}
	_, err := f.cfg.Sandboxes.control.SetDeadline(ctx, s.Project, s.ID, d)
	if errors.Is(err, errdefs.ErrBoxGone) {
		return noSandbox(s.ID) // it ended since it was looked up
	}
	return err
}

func (f *Facade) pause(w http.ResponseWriter, r *http.Request) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	memory, err := o.bool("memory")
	if err == nil && memory != nil && !*memory {
		err = keepsMemory("memory")
	}
	if err != nil {
		return err
	}
	healthy, err := o.bool("requireHealthyGuest")
	if err == nil {
		err = o.end()
	}
	if err != nil {
		return err
	}
	s, err := f.asked(r)
	if err != nil {
		return err
	}
	if paused(s) {
		return errdefs.Userf(errdefs.Conflict, "sandbox "+s.ID, "resume it by connecting to it", "it is paused already")
	}
	if healthy != nil && *healthy {
		if err := f.cfg.Sandboxes.answers(r.Context(), s); err != nil {
			return err
		}
	}
	if err := first(f.cfg.Sandboxes.control.Suspend(r.Context(), s.Project, control.Selector{IDs: []string{s.ID}})); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// answers tells whether what serves the box from inside does so.
func (s *Sandboxes) answers(ctx context.Context, of *control.Session) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	g, release, err := s.control.Reach(ctx, of.ID, false)
	if err == nil {
		defer release()
		err = g.Ping(ctx)
	}
	if err != nil {
		return errdefs.Infraf(errdefs.ScopeBox, errdefs.Unavailable, "sandbox "+of.ID, "its guest does not answer, and it is not paused: %w", err)
	}
	return nil
}

// connectV1 wants a time-out, connectV2 has a default.
func (f *Facade) connectV1(w http.ResponseWriter, r *http.Request) error {
	return f.connect(w, r, -1)
}

func (f *Facade) connectV2(w http.ResponseWriter, r *http.Request) error {
	return f.connect(w, r, timeoutV2)
}

// connect resumes a paused sandbox, and lets one live for at least so long from now.
func (f *Facade) connect(w http.ResponseWriter, r *http.Request, standard int) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	seconds, err := readResume(o, standard)
	if err == nil {
		err = o.end()
	}
	if err != nil {
		return err
	}
	s, err := f.asked(r)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if paused(s) {
		status = http.StatusCreated
	}
	if err := f.resumeFor(r.Context(), s, seconds, true); err != nil {
		return err
	}
	WriteJSON(w, status, f.wireSandbox(s))
	return nil
}

// resume resumes a paused sandbox for so many seconds.
func (f *Facade) resume(w http.ResponseWriter, r *http.Request) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	seconds, err := readResume(o, timeoutV1)
	if err != nil {
		return err
	}
	pauses, err := o.bool("autoPause")
	if err == nil {
		err = o.end()
	}
	if err != nil {
		return err
	}
	s, err := f.asked(r)
	if err != nil {
		return err
	}
	if !paused(s) {
		return errdefs.Userf(errdefs.Conflict, "sandbox "+s.ID, "connect to it", "it is running already")
	}
	if pauses != nil && *pauses != (onTimeout(s) == "pause") {
		return errdefs.Userf(errdefs.Unsupported, "field autoPause", "leave it out", "what happens at the time-out is decided when a sandbox is made")
	}
	if err := f.resumeFor(r.Context(), s, seconds, false); err != nil {
		return err
	}
	WriteJSON(w, http.StatusCreated, f.wireSandbox(s))
	return nil
}

func readResume(o *object, standard int) (seconds int, err error) {
	if seconds, err = o.seconds("timeout"); err != nil {
		return 0, err
	}
	if seconds < 0 {
		seconds = standard
	}
	if seconds < 0 {
		return 0, errdefs.Userf(errdefs.InvalidArgument, "field timeout", "give the seconds that the sandbox is to live from now", "is missing")
	}
	memory, err := o.bool("memory")
	if err == nil && memory != nil && !*memory {
		err = keepsMemory("memory")
	}
	return seconds, err
}

// resumeFor moves the deadline before the sandbox runs, so that an old one does not act in between.
func (f *Facade) resumeFor(ctx context.Context, s *control.Session, seconds int, extend bool) error {
	if err := f.live(ctx, s, seconds, extend); err != nil {
		return err
	}
	return first(f.cfg.Sandboxes.control.Resume(ctx, s.Project, control.Selector{IDs: []string{s.ID}}))
}

// first gives the one outcome of a call about one session.
func first(results []control.StopResult, err error) error {
	if err != nil {
		return err
	}
	if len(results) == 1 && results[0].Err != nil {
		return results[0].Err
	}
	return nil
}
