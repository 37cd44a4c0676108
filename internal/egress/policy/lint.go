package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Finding is something that is right and that its author may not have meant. Rule is stable.
type Finding struct{ Field, Rule, Message, Remedy string }

// Lint warns of rules that let out more than they seem to. It expects a Spec that compiles.
func Lint(s Spec) []Finding {
	var out []Finding
	add := func(field, rule, remedy, format string, args ...any) {
		out = append(out, Finding{Field: field, Rule: rule, Message: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	for i, d := range s.Domains {
		field := fmt.Sprintf("allowed_domains[%d]", i)
		p, ok := parsePattern(d.Name)
		if !ok {
			continue
		}
		if p.wild {
			suffix, icann := publicsuffix.PublicSuffix("x." + p.name)
			switch {
			case suffix == p.name && icann, !strings.Contains(p.name, "."):
				add(field, "wide-domain", "name the domains one by one", "%s allows every domain under %s", d.Name, p.name)
			case suffix == p.name:
				add(field, "shared-suffix", "name the hosts one by one", "anybody can register a name under %s, an agent's accomplice too", p.name)
			}
			add(field, "wildcard-tunnel", "name the hosts where they are known", "every label below %s reaches the domain's name servers: data can leave in names, %d a minute unless dns_names_per_minute says less", p.name, Defaults().DNSNamesPerMinute)
		}
		if why := mirror(p.name); why != "" {
			add(field, "mirror", "use a proxy of your own that serves what the task needs", "%s is %s", p.name, why)
		}
		if d.ECH == ECHAllow {
			add(field, "encrypted-hello", "leave ech out unless the tool fails without", "with ech: allow the node sees the outer name only, and the server decides which site is meant")
		}
	}
	for i, g := range s.IPs {
		field := fmt.Sprintf("allowed_ips[%d]", i)
		p, err := netip.ParsePrefix(g.CIDR)
		if err != nil {
			continue
		}
		if inside(p, private) && p.Bits() < 24 {
			add(field, "private-range", "name the services' addresses", "%s is a private range: every internal service in it can be reached", g.CIDR)
		} else if p.Bits() < 16 {
			add(field, "wide-range", "name the ranges the task needs", "%s is a wide range", g.CIDR)
		}
	}
	return out
}

// Caution says what to think of before a name is allowed; empty: nothing is known.
func Caution(name string) string {
	if why := mirror(name); why != "" {
		return name + " is " + why
	}
	if suffix, icann := publicsuffix.PublicSuffix(name); !icann && strings.Contains(suffix, ".") {
		return "anybody can register a name under " + suffix
	}
	return ""
}

// mirror knows by their labels the kinds of hosts that serve what anybody puts somewhere else.
func mirror(name string) string {
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case strings.HasPrefix(label, "goproxy"), label == "athens":
			return "a Go module proxy: it serves any public repository, so that it is a door to half the internet"
		case label == "jsdelivr", label == "unpkg", label == "githack", label == "statically":
			return "a mirror of public packages and repositories that anybody can fill"
		case strings.HasSuffix(label, "usercontent"):
			return "a host of content that anybody can upload"
		case label == "pastebin", label == "gist", label == "webhook", label == "ngrok", label == "requestbin":
			return "a place where anybody can leave and fetch data"
		}
	}
	if strings.HasPrefix(name, "proxy.golang.") {
		return "a Go module proxy: it serves any public repository, so that it is a door to half the internet"
	}
	return ""
}
