package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// ParseDomain reads NAME[:PORTS][/PROTOCOL][?ech=VALUE][&credential=NAME]. It checks the form only; Compile
// checks the values.
func ParseDomain(text string) (Domain, error) {
	rule, options, hasOptions := strings.Cut(text, "?")
	rest, proto, _ := strings.Cut(rule, "/")
	name, ports, hasPorts := strings.Cut(rest, ":")
	bad := fmt.Errorf("%q is not NAME[:PORTS][/PROTOCOL], like api.example.com or db.example.com:5432/tcp", text)
	if name == "" || hasPorts && ports == "" || strings.HasSuffix(rule, "/") || strings.Contains(proto, "/") {
		return Domain{}, bad
	}
	d := Domain{Name: name, Ports: ports, Protocol: Protocol(proto)}
	if !hasOptions {
		return d, nil
	}
	for o := range strings.SplitSeq(options, "&") {
		key, value, _ := strings.Cut(o, "=")
		switch {
		case value == "":
			return Domain{}, bad
		case key == "ech" && d.ECH == "":
			d.ECH = value
		case key == "credential" && d.Credential == "":
			d.Credential = value
		default:
			return Domain{}, fmt.Errorf("%q: the options of a name are ?ech=allow and ?credential=NAME, each once", text)
		}
	}
	return d, nil
}

// String writes the text form without options: what the rule matches.
func (d Domain) String() string { return join(d.Name, d.Ports, d.Protocol) }

// Text is the whole text form, which ParseDomain reads.
func (d Domain) Text() string {
	text, sep := d.String(), "?"
	for _, o := range [][2]string{{"ech", d.ECH}, {"credential", d.Credential}} {
		if o[1] != "" {
			text, sep = text+sep+o[0]+"="+o[1], "&"
		}
	}
	return text
}

// ParseRange reads ADDRESS[/BITS][:PORTS][/PROTOCOL]. It checks the form only.
func ParseRange(text string) (Range, error) {
	bad := fmt.Errorf("%q is not ADDRESS[/BITS][:PORTS][/PROTOCOL], like 10.20.0.8/32 or [fd00::/8]:443/tcp", text)
	rest, proto := text, ""
	if i := strings.LastIndexByte(text, '/'); i >= 0 && i+1 < len(text) && text[i+1] >= 'a' && !strings.Contains(text[i:], ":") {
		rest, proto = text[:i], text[i+1:]
	}
	var cidr, ports string
	var hasPorts bool
	switch inner, ok := strings.CutPrefix(rest, "["); {
	case ok:
		var tail string
		if cidr, tail, ok = strings.Cut(inner, "]"); !ok {
			return Range{}, bad
		}
		if ports, hasPorts = strings.CutPrefix(tail, ":"); !hasPorts && tail != "" {
			return Range{}, bad
		}
	case strings.Count(rest, ":") > 1: // IPv6 without ports
		cidr = rest
	default:
		cidr, ports, hasPorts = strings.Cut(rest, ":")
	}
	if cidr == "" || hasPorts && ports == "" {
		return Range{}, bad
	}
	return Range{CIDR: cidr, Ports: ports, Protocol: Protocol(proto)}, nil
}

// String writes the text form.
func (r Range) String() string {
	if strings.Contains(r.CIDR, ":") && r.Ports != "" {
		return join("["+r.CIDR+"]", r.Ports, r.Protocol)
	}
	return join(r.CIDR, r.Ports, r.Protocol)
}

func join(what, ports string, proto Protocol) string {
	if ports != "" {
		what += ":" + ports
	}
	if proto != "" {
		what += "/" + string(proto)
	}
	return what
}

type domainFields struct {
	Name       string   `json:"name"`
	Ports      string   `json:"ports,omitempty"`
	Protocol   Protocol `json:"protocol,omitempty"`
	ECH        string   `json:"ech,omitempty"`
	Credential string   `json:"credential,omitempty"`
}

// MarshalJSON writes the text form where it says all.
func (d Domain) MarshalJSON() ([]byte, error) {
	if d.ECH == "" && d.Credential == "" {
		return json.Marshal(d.String())
	}
	return json.Marshal(domainFields(d))
}

// UnmarshalJSON reads the text form or the object {name, ports, protocol, ech, credential}.
func (d *Domain) UnmarshalJSON(data []byte) (err error) {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*d, err = ParseDomain(s)
		return err
	}
	return strict(data, (*domainFields)(d))
}

type rangeFields struct {
	CIDR     string   `json:"cidr"`
	Ports    string   `json:"ports,omitempty"`
	Protocol Protocol `json:"protocol,omitempty"`
}

// MarshalJSON writes the text form.
func (r Range) MarshalJSON() ([]byte, error) { return json.Marshal(r.String()) }

// UnmarshalJSON reads the text form or the object {cidr, ports, protocol}.
func (r *Range) UnmarshalJSON(data []byte) (err error) {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*r, err = ParseRange(s)
		return err
	}
	return strict(data, (*rangeFields)(r))
}

func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
