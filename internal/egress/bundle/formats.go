package bundle

import (
	"strings"
)

// lines gives the trimmed lines that are not comments.
func lines(text string, comments string) []string {
	var out []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" && !strings.ContainsAny(l[:1], comments) {
			out = append(out, l)
		}
	}
	return out
}

// assignment reads "key = value" of a line.
func assignment(l string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(l, "=")
	return strings.ToLower(strings.TrimSpace(key)), strings.Trim(strings.TrimSpace(value), `"'`), ok
}

// pipURLs reads an INI file whose values may go on over indented lines.
func pipURLs(text string) []string {
	var out []string
	inList := false
	for l := range strings.Lines(text) {
		t := strings.TrimSpace(l)
		if t == "" || t[0] == '#' || t[0] == ';' {
			continue
		}
		if inList && (l[0] == ' ' || l[0] == '\t') {
			out = append(out, strings.Fields(t)...)
			continue
		}
		k, v, ok := assignment(t)
		k = strings.ReplaceAll(k, "_", "-")
		inList = ok && (k == "index-url" || k == "extra-index-url" || k == "find-links" || k == "index")
		if inList {
			out = append(out, strings.Fields(v)...)
		}
	}
	return out
}

// tomlURLs reads every quoted URL: the only ones in such a file are indexes.
func tomlURLs(text string) []string {
	var out []string
	for _, l := range lines(text, "#") {
		for i, part := range strings.Split(l, `"`) {
			if i%2 == 1 && strings.Contains(part, "://") {
				out = append(out, part)
			}
		}
	}
	return out
}

// npmURLs reads registry and @scope:registry.
func npmURLs(text string) []string {
	var out []string
	for _, l := range lines(text, "#;") {
		if k, v, ok := assignment(l); ok && (k == "registry" || strings.HasPrefix(k, "@") && strings.HasSuffix(k, ":registry")) {
			out = append(out, v)
		}
	}
	return out
}

// goURLs reads an environment file of the go command.
func goURLs(text string) []string {
	var out []string
	for _, l := range lines(text, "#") {
		switch k, v, _ := assignment(l); k {
		case "goproxy":
			out = append(out, proxyList(v)...)
		case "gosumdb":
			out = append(out, sumDB(v)...)
		}
	}
	return out
}

// proxyList reads GOPROXY; "direct" and "off" name no host.
func proxyList(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == '|' })
}

// sumDB reads GOSUMDB: a name with an optional key, and an optional URL.
func sumDB(v string) []string {
	f := strings.Fields(v)
	switch {
	case len(f) == 0 || f[0] == "off":
		return nil
	case len(f) > 1:
		return f[1:2]
	}
	name, _, _ := strings.Cut(f[0], "+")
	return []string{"https://" + name}
}

// aptURLs reads one-line sources: deb [options] URL suite …
func aptURLs(text string) []string {
	var out []string
	for _, l := range lines(text, "#") {
		kind, rest, _ := strings.Cut(l, " ")
		if kind != "deb" && kind != "deb-src" {
			continue
		}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			_, rest, _ = strings.Cut(rest, "]")
		}
		if f := strings.Fields(rest); len(f) > 0 {
			out = append(out, f[0])
		}
	}
	return out
}

// deb822URLs reads the URIs of stanzas that are not disabled.
func deb822URLs(text string) []string {
	var out []string
	for stanza := range strings.SplitSeq(strings.ReplaceAll(text, "\r", ""), "\n\n") {
		var found []string
		enabled, inURIs := true, false
		for l := range strings.Lines(stanza) {
			t := strings.TrimSpace(l)
			if t == "" || t[0] == '#' {
				continue
			}
			if inURIs && (l[0] == ' ' || l[0] == '\t') {
				found = append(found, strings.Fields(t)...)
				continue
			}
			k, v, _ := strings.Cut(t, ":")
			switch k = strings.ToLower(strings.TrimSpace(k)); k {
			case "uris":
				found = append(found, strings.Fields(v)...)
			case "enabled":
				enabled = strings.TrimSpace(strings.ToLower(v)) != "no"
			}
			inURIs = k == "uris"
		}
		if enabled {
			out = append(out, found...)
		}
	}
	return out
}

// gitURLs reads the bases of [url "…"] sections, to which git rewrites, and the urls of remotes.
func gitURLs(text string) []string {
	var out []string
	for _, l := range lines(text, "#;") {
		if rest, ok := strings.CutPrefix(l, "[url "); ok {
			if _, u, ok := strings.Cut(rest, `"`); ok {
				u, _, _ = strings.Cut(u, `"`)
				out = append(out, u)
			}
			continue
		}
		if k, v, ok := assignment(l); ok && k == "url" {
			out = append(out, v)
		}
	}
	return out
}
