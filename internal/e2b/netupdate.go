package e2b

import (
	"net/http"
	"slices"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
)

// updateNetwork replaces what a sandbox may reach. A policy that it has already is no change.
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
	want, err := q.policy(spec.Default().Network)
	if err != nil {
		return err
	}
	asked := s.Spec
	asked.Network = want
	if _, err := spec.Check(&asked, f.cfg.Runtimes...); err != nil {
		return err
	}
	if !sameNetwork(want, s.Spec.Network) {
		return errdefs.Userf(errdefs.Unsupported, "sandbox "+s.ID, "create another one with this network", "its policy cannot be changed while it runs")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func sameNetwork(a, b spec.Network) bool {
	return a.EgressPolicy == b.EgressPolicy && slices.Equal(a.AllowedDomains, b.AllowedDomains) && slices.Equal(a.AllowedIPs, b.AllowedIPs)
}
