package site

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress/credential"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Boxes of a project with credentials are shown the template's own authorities and the project's; others nothing.
func TestTrusted(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/credentials.yaml", "projects: {p: {model: {value: hush}}, q: {model: {value: hush}}}\n")
	write(t, dir+"/layer/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "the template's own")
	credentials, err := credential.Open(dir+"/authorities", dir+"/credentials.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{}, Trust{Credentials: credentials, Dir: dir + "/trusted"})
	if err != nil {
		t.Fatal(err)
	}
	root := runtime.Root{Layers: []runtime.Layer{{Path: dir + "/layer"}}}
	if mounts, env, err := s.Trusted("other", root, false, true); err != nil || mounts != nil || env != nil {
		t.Errorf("without a credential: %v %v %v", mounts, env, err)
	}
	seen := map[string]bool{}
	for _, project := range []string{"p", "q", "p"} {
		mounts, env, err := s.Trusted(project, root, false, true)
		if err != nil || len(mounts) != 1 {
			t.Fatalf("%v %v", mounts, err)
		}
		a, err := credentials.Authority(project)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(mounts[0].Source)
		if err != nil || string(data) != "the template's own\n"+string(a.PEM()) || strings.Contains(string(data), "PRIVATE") {
			t.Errorf("%v: %q", err, data)
		}
		if st, err := os.Stat(mounts[0].Source); err != nil || st.Mode().Perm() != 0o644 {
			t.Errorf("a box's user cannot read it: %v %v", st.Mode(), err)
		}
		if want := "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"; mounts[0].Target != want || !strings.Contains(strings.Join(env, "\n"), "SSL_CERT_FILE="+want) {
			t.Errorf("%v %v", mounts, env)
		}
		seen[mounts[0].Source] = true
	}
	if len(seen) != 2 {
		t.Errorf("two projects, %d lists", len(seen))
	}
	// A template without a list has one in the usual place.
	if mounts, _, err := s.Trusted("p", runtime.Root{}, true, false); err != nil || len(mounts) != 1 || mounts[0].Target != "/etc/ssl/certs/ca-certificates.crt" {
		t.Errorf("%v %v", mounts, err)
	}
}

func TestStandardIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		n  spec.Network
		ok bool
	}{
		"none":     {spec.Network{}, true},
		"a name":   {spec.Network{EgressPolicy: spec.EgressWhitelist, AllowedDomains: []string{"a.test"}}, true},
		"a bundle": {spec.Network{EgressPolicy: spec.EgressWhitelist, Bundles: map[string]bool{"pypi": true}}, true},
		"no name":  {spec.Network{EgressPolicy: spec.EgressWhitelist, AllowedDomains: []string{"http://a"}}, false},
		"phases":   {spec.Network{Phases: map[string]spec.NetworkPhase{"agent": {}}}, false},
		"no mode":  {spec.Network{EgressPolicy: "some"}, false},
	} {
		if _, err := New(Config{Standard: c.n}, Trust{}); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProjectsAreBounded(t *testing.T) {
	s, err := New(Config{Default: &Bound{Domains: []string{"*.in.test"}}, Projects: map[string]Bound{"wide": {Domains: []string{"*"}}}}, Trust{})
	if err != nil {
		t.Fatal(err)
	}
	n := spec.Network{EgressPolicy: spec.EgressWhitelist, AllowedDomains: []string{"api.out.test"}}
	if _, err := s.Compile("any", &template.Template{}, runtime.Root{}, &n); err == nil || !strings.Contains(err.Error(), "api.out.test") && !strings.Contains(err.Error(), "allowed_domains") {
		t.Errorf("outside of the bound: %v", err)
	}
	if p, err := s.Compile("wide", &template.Template{}, runtime.Root{}, &n); err != nil || p == nil {
		t.Errorf("inside: %v", err)
	}
	if p, err := s.Compile("any", &template.Template{}, runtime.Root{}, &spec.Network{EgressPolicy: spec.EgressDeny}); p != nil || err != nil {
		t.Errorf("nothing asked: %v %v", p, err)
	}
}

// A networked box of a project without credentials trusts the project's authority too: in the place of the template's
// list, or beside it where the box may replace that.
func TestTrustedByNetwork(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/layer/etc/ssl/certs/ca-certificates.crt", "the template's own")
	write(t, dir+"/layer/etc/apt/apt.conf.d/50x", "")
	credentials, err := credential.Open(dir+"/authorities", "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{}, Trust{Credentials: credentials, Dir: dir + "/trusted"})
	if err != nil {
		t.Fatal(err)
	}
	root := runtime.Root{Layers: []runtime.Layer{{Path: dir + "/layer"}}}
	if mounts, env, err := s.Trusted("p", root, false, false); err != nil || mounts != nil || env != nil {
		t.Errorf("without a network: %v %v %v", mounts, env, err)
	}
	if _, err := os.Stat(dir + "/authorities/p"); err == nil {
		t.Error("an authority was made that nobody needs")
	}
	for _, tc := range []struct {
		writable bool
		targets  []string
	}{
		{false, []string{"/etc/ssl/certs/ca-certificates.crt"}},
		{true, []string{"/etc/dsec/authorities.pem", "/etc/apt/apt.conf.d/95dsec-authorities"}},
	} {
		for range 2 { // read, and remembered
			mounts, env, err := s.Trusted("p", root, true, tc.writable)
			if err != nil || len(mounts) != len(tc.targets) || !slices.Contains(env, "SSL_CERT_FILE="+tc.targets[0]) {
				t.Fatalf("%v %v %v", mounts, env, err)
			}
			for i, m := range mounts {
				if m.Target != tc.targets[i] {
					t.Errorf("%v", mounts)
				}
			}
			a, err := credentials.Authority("p")
			if err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(mounts[0].Source); err != nil || string(data) != "the template's own\n"+string(a.PEM()) {
				t.Errorf("%v %q", err, data)
			}
		}
	}
}
