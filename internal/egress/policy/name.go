package policy

import "strings"

// Fold gives the form in which names are compared: lower case, without the final dot. It is ok
// only for what may be a host name: letters, digits, - and _ in labels of 1 to 63 bytes, 253 in
// all. International names come in their xn-- form.
func Fold(name string) (folded string, ok bool) {
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > 253 {
		return "", false
	}
	label, upper := 0, false
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '.':
			if label == 0 {
				return "", false
			}
			label = 0
			continue
		case 'A' <= c && c <= 'Z':
			upper = true
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	if label == 0 {
		return "", false
	}
	if upper {
		name = strings.ToLower(name)
	}
	return name, true
}

// pattern is a name, or with wild every name below it. An empty suffix with wild is any name.
type pattern struct {
	name string
	wild bool
}

func parsePattern(text string) (pattern, bool) {
	rest, wild := strings.CutPrefix(text, "*.")
	name, ok := Fold(rest)
	return pattern{name, wild}, ok
}

func (p pattern) match(folded string) bool {
	if !p.wild {
		return folded == p.name
	}
	head, ok := strings.CutSuffix(folded, p.name)
	return ok && len(head) > 1 && head[len(head)-1] == '.'
}

// covers tells whether every name of q matches p.
func (p pattern) covers(q pattern) bool {
	if !q.wild {
		return p.match(q.name)
	}
	return p.wild && (p.name == q.name || p.match(q.name))
}

func (p pattern) String() string {
	if p.wild {
		return "*." + p.name
	}
	return p.name
}
