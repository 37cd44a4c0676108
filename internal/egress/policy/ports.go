package policy

import (
	"fmt"
	"strconv"
	"strings"
)

type span struct{ first, last uint16 }

// parsePorts reads "443", "8000-8080,9000"; empty gives nil.
func parsePorts(text string) ([]span, error) {
	if text == "" {
		return nil, nil
	}
	var out []span
	for part := range strings.SplitSeq(text, ",") {
		a, b, isRange := strings.Cut(part, "-")
		first, err := port(a)
		last := first
		if err == nil && isRange {
			last, err = port(b)
		}
		if err != nil {
			return nil, err
		}
		if last < first {
			return nil, fmt.Errorf("%q ends before it starts", part)
		}
		out = append(out, span{first, last})
	}
	return out, nil
}

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return uint16(n), nil
}

func has(spans []span, p uint16) bool {
	for _, s := range spans {
		if s.first <= p && p <= s.last {
			return true
		}
	}
	return false
}

// usual is the protocol that a port has when a rule says none.
func usual(p uint16) Protocol {
	switch p {
	case 80:
		return HTTP
	case 443:
		return TLS
	}
	return TCP
}
