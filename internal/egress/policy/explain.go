package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Attempt is something that a box tried and that was refused.
type Attempt struct {
	Name     string
	Addr     netip.Addr
	Port     uint16 // 0: a DNS query alone
	Protocol Protocol
	Reason   Reason
	Count    int // 0 counts as 1
}

// Suggestion is a rule that would have allowed attempts, or Rule empty: why none can.
type Suggestion struct {
	// Field is allowed_domains, allowed_ips or limits.
	Field string `json:"field,omitempty"`
	Rule  string `json:"rule,omitempty"`
	// Attempts is how many of them it covers; Names are what they asked for.
	Attempts int      `json:"attempts"`
	Names    []string `json:"names"`
	// Note says what to think of before it is allowed; Wider is a wildcard that would cover several.
	Note  string `json:"note,omitempty"`
	Wider string `json:"wider,omitempty"`
}

func (s Suggestion) remedy() string {
	if s.Rule == "" {
		return "no rule lifts this; what listens in the box itself is reached at localhost without one"
	}
	out := "add " + strconv.Quote(s.Rule) + " to " + s.Field
	if s.Note != "" {
		out += "; " + s.Note
	}
	return out
}

type need struct {
	field, what string
	never       string // why no rule helps
}

// Explain turns refused attempts into the rules that would have allowed them, most wanted first:
// one rule a name or address with all its ports, and a wildcard where three names share a domain.
func Explain(refused []Attempt) []Suggestion {
	type group struct {
		ports  map[string]bool
		n      int
		denied bool // by a policy that lets nothing out, whatever it lists
	}
	groups := map[need]*group{}
	for _, a := range refused {
		n := a.need()
		g := groups[n]
		if g == nil {
			g = &group{ports: map[string]bool{}}
			groups[n] = g
		}
		g.n += max(a.Count, 1)
		g.denied = g.denied || a.Reason == PolicyDenies
		if p := a.port(); p != "" {
			g.ports[p] = true
		}
	}
	var out []Suggestion
	for n, g := range groups {
		s := Suggestion{Attempts: g.n, Names: []string{n.what}}
		if n.never != "" {
			s.Note = n.never
			out = append(out, s)
			continue
		}
		s.Field = n.field
		if n.field == "limits" {
			s.Rule = n.what
			out = append(out, s)
			continue
		}
		tcp, udp := portLists(g.ports)
		if udp != "" {
			u := s
			u.Rule, u.Note = rangeText(n.what, udp)+"/udp", modeNote(g.denied)
			out = append(out, u)
		}
		if tcp != "" || udp == "" {
			s.Rule = rangeText(n.what, tcp)
			if n.field == "allowed_domains" && slices.Contains([]string{"443", "80", "80,443", ""}, tcp) {
				s.Rule = n.what
			}
			s.Note = strings.Trim(modeNote(g.denied)+"; "+caution(n), "; ")
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), strings.Compare(a.Rule+a.Names[0], b.Rule+b.Names[0]))
	})
	widen(out)
	return out
}

func (a Attempt) need() need {
	field, what := "allowed_domains", a.Name
	if a.Name == "" {
		field, what = "allowed_ips", a.Addr.Unmap().String()
		if !a.Addr.IsValid() {
			what = string(cmp.Or(a.Reason, "unknown"))
		}
	}
	switch a.Reason {
	case AddressForbidden:
		if a.Addr.Unmap() == Explainer {
			return need{what: what, never: fmt.Sprintf("names that are refused lead to this address: allow the one that was meant with its port, as in NAME:%d", a.Port)}
		}
		return need{what: what, never: AddressForbidden.Text()}
	case PingRefused, ProtocolRefused, SourceForged, QueryMalformed, NotTLS, NotHTTP, ServerNameMissing, MethodRefused, NoSuchName, ResolverFailed, DialFailed, UpstreamUntrusted, CredentialMissing, PolicyChanged:
		return need{what: what, never: a.Reason.Text()}
	case LimitConnects, LimitConnections, LimitDNS, LimitNames, LimitBytes, LimitRecords:
		return need{field: "limits", what: strings.ReplaceAll(strings.TrimPrefix(string(a.Reason), "limit-"), "-", "_")}
	case AddressPrivate, AddressNotAllowed:
		if a.Addr.IsValid() {
			return need{field: "allowed_ips", what: a.Addr.Unmap().String()}
		}
	}
	return need{field: field, what: what}
}

func (a Attempt) port() string {
	switch {
	case a.Port == 0:
		return ""
	case a.Protocol == UDP:
		return strconv.Itoa(int(a.Port)) + "/udp"
	}
	return strconv.Itoa(int(a.Port))
}

func portLists(set map[string]bool) (tcp, udp string) {
	var t, u []int
	for p := range set {
		num, isUDP := strings.CutSuffix(p, "/udp")
		n, _ := strconv.Atoi(num)
		if isUDP {
			u = append(u, n)
		} else {
			t = append(t, n)
		}
	}
	return portText(t), portText(u)
}

func portText(ports []int) string {
	slices.Sort(ports)
	var out []string
	for _, p := range ports {
		out = append(out, strconv.Itoa(p))
	}
	return strings.Join(out, ",")
}

func rangeText(what, ports string) string {
	if ports == "" {
		return what
	}
	if strings.Contains(what, ":") {
		what = "[" + what + "]"
	}
	return what + ":" + ports
}

// modeNote says what a rule needs beside itself.
func modeNote(denied bool) string {
	if denied {
		return "needs egress_policy: whitelist"
	}
	return ""
}

func caution(n need) string {
	if n.field == "allowed_domains" {
		return Caution(n.what)
	}
	if a, err := netip.ParseAddr(n.what); err == nil && ClassOf(a) == Private {
		return "a private address: an internal service that every box with this rule reaches"
	}
	return "a name would say more than an address: find the one that the tool asks for"
}

// widen names a wildcard on suggestions of which three or more share a registrable domain.
func widen(out []Suggestion) {
	byDomain := map[string][]int{}
	for i, s := range out {
		if s.Field != "allowed_domains" {
			continue
		}
		if d, err := publicsuffix.EffectiveTLDPlusOne(s.Names[0]); err == nil && d != s.Names[0] {
			byDomain[d] = append(byDomain[d], i)
		}
	}
	for d, is := range byDomain {
		if len(is) < 3 {
			continue
		}
		for _, i := range is {
			out[i].Wider = fmt.Sprintf("*.%s", d)
		}
	}
}
