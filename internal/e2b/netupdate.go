package e2b

import (
	"net/http"

	"github.com/dsec-platform/dsec/internal/spec"
)

// updateNetwork replaces what a sandbox may reach: when it answers, the new policy is in force and
// what it does not allow is cut. What is not said is as for a create that does not say it.
func (f *Facade) updateNetwork(w http.ResponseWriter, r *http.Request) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	q, err := readUpdate(o)
	if err != nil {
		return err
	}
	s, err := f.asked(r)
	if err != nil {
		return err
	}
	want, err := q.policy(f.cfg.Network)
	if err != nil {
		return err
	}
	asked := s.Spec
	asked.Network = want
	if _, err := spec.Check(&asked, f.cfg.Runtimes...); err != nil {
		return err
	}
	if _, err := f.cfg.Sandboxes.control.SwitchNetwork(r.Context(), s.Project, s.ID, "", &want); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
