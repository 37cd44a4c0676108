package template

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// TestRegistryThatHasNoAddress: a wrong name is who wrote it to mend; whoever hears of it learns nothing of the node's resolver.
func TestRegistryThatHasNoAddress(t *testing.T) {
	s := open(t, t.TempDir(), Options{Registries: Registries{Mirrors: map[string]string{"ghcr.io": "mirror.example:5000"}}})
	dns := func(name string, absent bool) error {
		return &net.DNSError{Err: "read udp 10.9.8.1:5->10.9.8.7:53: i/o timeout", Name: name, Server: "10.9.8.7:53", IsNotFound: absent, IsTimeout: !absent}
	}
	dial := func(op string, err error) error {
		return fmt.Errorf("Get %q: %w", "https://x/v2/", &net.OpError{Op: op, Net: "tcp", Err: err})
	}
	for _, c := range []struct {
		err   error
		class errdefs.Class
		names string
	}{
		{dial("dial", dns("nosuch.example", true)), errdefs.User, "nosuch.example"},
		{dial("dial", dns("nosuch.example", false)), errdefs.Infrastructure, "nosuch.example"},
		{dial("dial", dns("mirror.example", true)), errdefs.Infrastructure, "mirror.example"},
		{dial("proxyconnect", dns("proxy.example", true)), errdefs.Infrastructure, "proxy.example"},
	} {
		e := errdefs.From(s.registryError("nosuch.example/app:1", c.err))
		if e.Class != c.class || !strings.Contains(e.Message, c.names) || e.Remedy == "" || strings.Contains(e.Error(), "10.9.8.") || errors.Is(e, c.err) {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
	// A real one: whatever this machine's name servers say, they are not named.
	_, err := s.ImageDigest(t.Context(), Source{Kind: Registry, Ref: "nosuch.invalid/team/app:1", Guarded: true})
	if err == nil || !strings.Contains(err.Error(), "nosuch.invalid") || strings.Contains(err.Error(), ":53") {
		t.Errorf("%v", err)
	}
}
