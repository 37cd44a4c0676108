package policy

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func spec(t testing.TB, mode Mode, domains []string, ips ...string) Spec {
	t.Helper()
	s := Spec{Mode: mode}
	for _, text := range domains {
		d, err := ParseDomain(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Domains = append(s.Domains, d)
	}
	for _, text := range ips {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		s.IPs = append(s.IPs, r)
	}
	return s
}

func compile(t testing.TB, s Spec, o Options) *Policy {
	t.Helper()
	p, err := Compile(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheck(t *testing.T) {
	p := compile(t, spec(t, Whitelist,
		[]string{"api.example.com", "*.cdn.example.com:443", "db.example.com:5432/tcp", "ntp.example.com:123/udp", "Mixed.Example.COM:8000-8010,9000/http"},
		"10.20.0.8/32", "203.0.113.0/24:80,443", "198.51.100.7:53/udp"), Options{Phase: "agent"})
	for _, tc := range []struct {
		host      string
		port      uint16
		transport Protocol
		want      Protocol // "" is refused
		reason    Reason
	}{
		{"api.example.com", 443, TCP, TLS, ""},
		{"API.example.com.", 80, TCP, HTTP, ""},
		{"api.example.com", 22, TCP, "", PortNotAllowed},
		{"api.example.com", 443, UDP, "", UDPNotAllowed},
		{"example.com", 443, TCP, "", NameNotAllowed},
		{"xapi.example.com", 443, TCP, "", NameNotAllowed},
		{"a.cdn.example.com", 443, TCP, TLS, ""},
		{"a.b.cdn.example.com", 443, TCP, TLS, ""},
		{"cdn.example.com", 443, TCP, "", NameNotAllowed},
		{"evilcdn.example.com", 443, TCP, "", NameNotAllowed},
		{"a.cdn.example.com", 80, TCP, "", PortNotAllowed},
		{"db.example.com", 5432, TCP, TCP, ""},
		{"ntp.example.com", 123, UDP, UDP, ""},
		{"ntp.example.com", 123, TCP, "", PortNotAllowed},
		{"mixed.example.com", 8005, TCP, HTTP, ""},
		{"mixed.example.com", 9001, TCP, "", PortNotAllowed},
		{"10.20.0.8", 1, TCP, TCP, ""},
		{"10.20.0.9", 1, TCP, "", AddressPrivate},
		{"203.0.113.5", 443, TCP, TCP, ""},
		{"203.0.113.5", 22, TCP, "", PortNotAllowed},
		{"198.51.100.7", 53, UDP, UDP, ""},
		{"198.51.100.7", 53, TCP, "", PortNotAllowed},
		{"8.8.8.8", 53, UDP, "", UDPNotAllowed},
		{"8.8.8.8", 443, TCP, "", AddressNotAllowed},
		{"127.0.0.1", 80, TCP, "", AddressForbidden},
		{"169.254.169.254", 80, TCP, "", AddressForbidden},
		{"::ffff:127.0.0.1", 80, TCP, "", AddressForbidden},
		{"64:ff9b::a00:1", 80, TCP, "", AddressForbidden},
		{"100.100.100.200", 80, TCP, "", AddressForbidden},
		{"2001:db8::1", 80, TCP, "", AddressNotAllowed},
		{"bad name", 80, TCP, "", NameNotAllowed},
	} {
		r := p.Check(tc.host, tc.port, tc.transport)
		if r.Allowed != (tc.want != "") || r.Protocol != tc.want || r.Reason != tc.reason || r.Message == "" || r.Phase != "agent" {
			t.Errorf("%s:%d/%s: %+v", tc.host, tc.port, tc.transport, r)
		}
		if r.Allowed && r.Rule == "" {
			t.Errorf("%s: no rule is named", tc.host)
		}
	}
}

// Whatever a rule says, these are never reached, and private addresses only by private ranges.
func TestNeverReached(t *testing.T) {
	p := compile(t, spec(t, Open, nil, "0.0.0.0/0", "10.1.0.0/16"), Options{})
	for a, want := range map[string]Reason{
		"127.0.0.1": AddressForbidden, "0.0.0.0": AddressForbidden, "169.254.1.1": AddressForbidden, "224.0.0.1": AddressForbidden,
		"255.255.255.255": AddressForbidden, "168.63.129.16": AddressForbidden, "10.0.0.1": AddressPrivate, "192.168.1.1": AddressPrivate,
		"100.64.0.1": AddressPrivate, "10.1.2.3": "", "8.8.8.8": "",
	} {
		if got := p.Address(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %q, want %q", a, got, want)
		}
	}
}

func TestOpenAndDeny(t *testing.T) {
	open := compile(t, spec(t, Open, []string{"x.test:53/udp"}), Options{})
	if r := open.Check("any.test", 12345, TCP); !r.Allowed || r.Protocol != TCP {
		t.Errorf("%+v", r)
	}
	if r := open.Check("any.test", 443, UDP); r.Allowed {
		t.Errorf("open lets UDP out unnamed: %+v", r)
	}
	if r := open.Check("x.test", 53, UDP); !r.Allowed {
		t.Errorf("%+v", r)
	}
	deny := compile(t, Spec{Mode: Deny, Domains: []Domain{{Name: "x.test"}}}, Options{})
	if r := deny.Check("x.test", 443, TCP); r.Allowed || r.Reason != PolicyDenies || !deny.Closed() {
		t.Errorf("%+v", r)
	}
	if !compile(t, Spec{}, Options{}).Closed() || !compile(t, Spec{Mode: Whitelist}, Options{}).Closed() {
		t.Error("an empty policy is not closed")
	}
}

func TestMistakesAreAllTold(t *testing.T) {
	bad := Spec{Mode: "allow",
		Domains: []Domain{{Name: "https://x"}, {Name: "1.2.3.4"}, {Name: "x.test", Ports: "0"}, {Name: "x.test", Protocol: UDP}, {Name: "x.test", ECH: "maybe"}, {Name: "*.x.test", Credential: "c"}, {Name: "bücher.test"}},
		IPs:     []Range{{CIDR: "10.0.0.1/8"}, {CIDR: "127.0.0.1"}, {CIDR: "fd00::/8"}, {CIDR: "x"}, {CIDR: "10.0.0.0/8", Protocol: TLS}},
		Bundles: map[string]bool{"pypi": true, "npm": false},
		Limits:  Limits{Connections: -1},
	}
	_, err := Compile(bad, Options{})
	ps, ok := errors.AsType[Problems](err)
	if !ok || len(ps) != 15 {
		t.Fatalf("%d problems:\n%v", len(ps), err)
	}
	for _, p := range ps {
		if p.Field == "" || p.Message == "" || p.Remedy == "" {
			t.Errorf("%+v", p)
		}
	}
	if e := errdefs.From(err); e.Class != errdefs.User || e.Reason != errdefs.InvalidArgument {
		t.Errorf("%+v", e)
	}
	if _, err := Compile(Spec{Domains: []Domain{{Name: "x.test"}}}, Options{}); err == nil || !strings.Contains(err.Error(), "whitelist") {
		t.Errorf("a list without a policy: %v", err)
	}
}

func TestBound(t *testing.T) {
	o := Options{Bound: &Bound{Domains: []string{"*.corp.test", "pub.test"}, IPs: []string{"10.0.0.0/8"}, Limits: Limits{Connections: 100, Bandwidth: 1000}}}
	p := compile(t, spec(t, Whitelist, []string{"a.corp.test", "*.b.corp.test", "pub.test"}, "10.1.0.0/24"), o)
	if l := p.Limits(); l.Connections != 100 || l.Bandwidth != 1000 || l.DNSPerSecond == 0 {
		t.Errorf("limits %+v", l)
	}
	for name, s := range map[string]Spec{
		"open": {Mode: Open}, "other name": spec(t, Whitelist, []string{"x.test"}), "apex": spec(t, Whitelist, []string{"corp.test"}), "wildcard of a plain name": spec(t, Whitelist, []string{"*.pub.test"}),
		"wider wildcard": spec(t, Whitelist, []string{"*.test"}), "other range": spec(t, Whitelist, nil, "192.168.0.0/16"), "wider range": spec(t, Whitelist, nil, "0.0.0.0/0"),
		"limit": {Mode: Whitelist, Limits: Limits{Connections: 101}},
	} {
		if _, err := Compile(s, o); err == nil {
			t.Errorf("%s is beyond the bound", name)
		}
	}
	within := compile(t, Spec{Mode: Open}, Options{Bound: &Bound{Open: true, Domains: []string{"*.corp.test"}}})
	for host, want := range map[string]bool{"a.corp.test": true, "a.other.test": false, "203.0.113.1": false} {
		if r := within.Check(host, 22, TCP); r.Allowed != want {
			t.Errorf("open within a bound: %+v", r)
		}
	}
	b := o
	b.Bundles = map[string]Bundle{"pypi": {Domains: []Domain{{Name: "outside.test"}}}}
	if _, err := Compile(Spec{Mode: Whitelist, Bundles: map[string]bool{"pypi": true}}, b); err == nil {
		t.Error("a bundle passes the bound")
	}
}

func TestBundlesAndStorage(t *testing.T) {
	o := Options{Phase: "setup", Bundles: map[string]Bundle{"pypi": {Domains: []Domain{{Name: "pip.corp.test", Ports: "443", Protocol: TLS}}, Source: "template: /etc/pip.conf"}}}
	p := compile(t, Spec{Mode: Whitelist, Bundles: map[string]bool{"pypi": true, "npm": false}, Domains: []Domain{{Name: "a.test", ECH: ECHAllow, Credential: "key"}}}, o)
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	q, err := Load(data) // without the bundles at hand
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []*Policy{p, q} {
		r := x.Check("pip.corp.test", 443, TCP)
		if !r.Allowed || !strings.HasPrefix(r.Rule, "bundle pypi") || r.Phase != "setup" {
			t.Errorf("%+v", r)
		}
		if m := x.Host("a.test", 443, TCP); !m.ECH || m.Credential != "key" {
			t.Errorf("%+v", m)
		}
	}
}

func TestPhases(t *testing.T) {
	ph, err := CompilePhases(Spec{}, map[string]Spec{"setup": {Mode: Open}, "agent": {Mode: Deny}, "verify": spec(t, Whitelist, []string{"a.test"})}, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p := ph.First(); p.Mode() != Open || p.Phase() != "setup" || !ph.Needed() {
		t.Errorf("%v %v", p.Mode(), p.Phase())
	}
	if p, err := ph.Phase("agent"); err != nil || p.Mode() != Deny {
		t.Error(err)
	}
	if _, err := ph.Phase("x"); err == nil || !strings.Contains(err.Error(), "agent, setup, verify") {
		t.Error(err)
	}
	_, err = CompilePhases(Spec{}, map[string]Spec{"agent": {Mode: "x"}}, "none", Options{})
	if ps, ok := errors.AsType[Problems](err); !ok || len(ps) != 2 || ps[0].Field != "phases.agent.egress_policy" {
		t.Error(err)
	}
}

func TestExplain(t *testing.T) {
	addr := netip.MustParseAddr
	got := Explain([]Attempt{
		{Name: "api.example.com", Port: 443, Reason: NameNotAllowed}, {Name: "api.example.com", Reason: NameNotAllowed, Count: 5},
		{Name: "static.example.com", Reason: NameNotAllowed}, {Name: "cdn.example.com", Port: 8443, Reason: PortNotAllowed},
		{Addr: addr("10.1.2.3"), Port: 5432, Reason: AddressPrivate}, {Addr: addr("8.8.8.8"), Port: 53, Protocol: UDP, Reason: UDPNotAllowed},
		{Addr: addr("127.0.0.1"), Port: 80, Reason: AddressForbidden}, {Name: "x.githubusercontent.com", Reason: NameNotAllowed}, {Reason: LimitConnects},
		{Addr: addr("192.0.0.8"), Port: 9443, Reason: AddressForbidden}, {Name: "denied.example.com", Port: 443, Reason: PolicyDenies},
	})
	rules := map[string]Suggestion{}
	for _, s := range got {
		key := s.Rule
		if s.Rule == "" {
			key = s.Names[0]
		}
		rules[key] = s
	}
	if s := rules["api.example.com"]; s.Attempts != 6 || s.Field != "allowed_domains" || s.Wider != "*.example.com" || got[0].Rule != s.Rule {
		t.Errorf("%+v", s)
	}
	for _, want := range []string{"static.example.com", "cdn.example.com:8443", "10.1.2.3:5432", "8.8.8.8:53/udp", "connects_per_second"} {
		if _, ok := rules[want]; !ok {
			t.Errorf("%s is not suggested: %+v", want, got)
		}
	}
	if s := rules["127.0.0.1"]; s.Rule != "" || s.Note == "" {
		t.Errorf("%+v", s)
	}
	if s := rules["192.0.0.8"]; s.Rule != "" || !strings.Contains(s.Note, "NAME:9443") {
		t.Errorf("refused names: %+v", s)
	}
	if s := rules["denied.example.com"]; !strings.HasPrefix(s.Note, "needs egress_policy: whitelist") {
		t.Errorf("a policy that denies: %+v", s)
	}
	if s := rules["x.githubusercontent.com"]; s.Note == "" {
		t.Errorf("%+v", s)
	}
}

// A remedy says more than the refusal did.
func TestRemedies(t *testing.T) {
	deny := compile(t, Spec{Mode: Deny}, Options{})
	if r := deny.Check("a.example.com", 443, TCP); !strings.Contains(r.Remedy, `"a.example.com"`) || !strings.Contains(r.Remedy, "egress_policy: whitelist") {
		t.Errorf("%+v", r)
	}
	listed := compile(t, Spec{Mode: Whitelist, Domains: []Domain{{Name: "unrelated.test"}}}, Options{})
	if r := listed.Check("127.0.0.1", 22, TCP); !strings.Contains(r.Remedy, "localhost") || strings.Contains(r.Message, r.Remedy) {
		t.Errorf("%+v", r)
	}
}

// What Explain suggests allows what was refused.
func TestSuggestionsHelp(t *testing.T) {
	none := compile(t, Spec{Mode: Whitelist, Domains: []Domain{{Name: "unrelated.test"}}}, Options{})
	for _, tc := range []struct {
		host      string
		port      uint16
		transport Protocol
	}{{"a.example.com", 443, TCP}, {"a.example.com", 80, TCP}, {"a.example.com", 5432, TCP}, {"a.example.com", 53, UDP}, {"10.9.8.7", 80, TCP}, {"8.8.8.8", 443, UDP}, {"unrelated.test", 22, TCP}} {
		r := none.Check(tc.host, tc.port, tc.transport)
		s := Explain([]Attempt{{Name: nameOf(tc.host), Addr: addrOf(tc.host), Port: tc.port, Protocol: tc.transport, Reason: r.Reason}})
		var domains, ips []string
		if s[0].Field == "allowed_domains" {
			domains = append(domains, s[0].Rule)
		} else {
			ips = append(ips, s[0].Rule)
		}
		if got := compile(t, spec(t, Whitelist, domains, ips...), Options{}).Check(tc.host, tc.port, tc.transport); !got.Allowed || r.Remedy == "" {
			t.Errorf("%v: %+v does not help: %+v", tc, s[0], got)
		}
	}
}

func TestLint(t *testing.T) {
	got := Lint(spec(t, Whitelist, []string{"*.github.io", "*.com", "*.corp.example.com", "proxy.golang.test", "goproxy.corp.test", "api.example.com"}, "10.0.0.0/8", "1.0.0.0/8", "10.0.0.1"))
	rules := map[string]int{}
	for _, f := range got {
		rules[f.Rule]++
	}
	for rule, n := range map[string]int{"shared-suffix": 1, "wide-domain": 1, "wildcard-tunnel": 3, "mirror": 2, "private-range": 1, "wide-range": 1} {
		if rules[rule] != n {
			t.Errorf("%s: %d, want %d (%v)", rule, rules[rule], n, got)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("api.example.com:443/tls", "10.0.0.0/8:1-2,3/udp", `{"egress_policy":"whitelist","allowed_domains":["a.b",{"name":"c.d","ech":"allow"}]}`)
	f.Add("*.x:80", "[fd00::/8]:1", `{"allowed_ips":["1.2.3.4"],"limits":{"bytes":5}}`)
	f.Fuzz(func(t *testing.T, domain, cidr, text string) {
		var s Spec
		if json.Unmarshal([]byte(text), &s) != nil {
			s = Spec{Mode: Whitelist}
		}
		if d, err := ParseDomain(domain); err == nil {
			if again, err := ParseDomain(d.String()); err != nil || again != d {
				t.Fatalf("%q: %+v, then %+v %v", domain, d, again, err)
			}
			s.Domains = append(s.Domains, d)
		}
		if r, err := ParseRange(cidr); err == nil {
			if again, err := ParseRange(r.String()); err != nil || again != r {
				t.Fatalf("%q: %+v, then %+v %v", cidr, r, again, err)
			}
			s.IPs = append(s.IPs, r)
		}
		p, err := Compile(s, Options{})
		if err != nil {
			return
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Load(data)
		if err != nil {
			t.Fatalf("a stored policy is not read: %v\n%s", err, data)
		}
		for _, host := range []string{"127.0.0.1", "169.254.169.254", "224.1.1.1"} {
			if p.Check(host, 80, TCP).Allowed {
				t.Fatalf("%s is let out by %s", host, data)
			}
		}
		if a, b := p.Check("c.d", 443, TCP), q.Check("c.d", 443, TCP); a != b {
			t.Fatalf("%+v, stored %+v", a, b)
		}
	})
}
