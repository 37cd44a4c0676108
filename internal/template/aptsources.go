package template

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hostSources gives the package sources of a suite that this machine's own apt
// is configured with, as one-line entries: nothing when it has none for the suite. Sources
// with a password in the address are left out, it would end up in the template.
func hostSources(aptDir, suite string) []string {
	files, _ := filepath.Glob(filepath.Join(aptDir, "sources.list.d", "*"))
	files = append([]string{filepath.Join(aptDir, "sources.list")}, files...)
	var out []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		switch filepath.Ext(f) {
		case ".list":
			out = append(out, oneLineSources(string(b), suite)...)
		case ".sources":
			out = append(out, stanzaSources(string(b), suite)...)
		}
	}
	// Without the suite itself, updates alone are of no use.
	if !slices.ContainsFunc(out, func(l string) bool { return slices.Contains(strings.Fields(l), suite) }) {
		return nil
	}
	return out
}

// belongs tells whether a suite's name is the wanted one or one of its updates.
func belongs(name, suite string) bool {
	return name == suite || strings.HasPrefix(name, suite+"-") || strings.HasPrefix(name, suite+"/")
}

func oneLineSources(text, suite string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "deb" {
			continue
		}
		at := 1
		if strings.HasPrefix(f[1], "[") {
			for at < len(f) && !strings.HasSuffix(f[at], "]") {
				at++
			}
			at++
		}
		if at+1 < len(f) && usable(f[at]) && belongs(f[at+1], suite) {
			out = append(out, strings.Join(f, " "))
		}
	}
	return out
}

// stanzaSources turns deb822 stanzas into one-line entries. Keys that stand in
// the stanza itself cannot be said in one line: such a stanza is left out.
func stanzaSources(text, suite string) []string {
	var out []string
	for stanza := range strings.SplitSeq(text, "\n\n") {
		f := stanzaFields(stanza)
		key := f["signed-by"]
		if !slices.Contains(strings.Fields(f["types"]), "deb") || f["enabled"] == "no" || strings.Contains(key, "BEGIN PGP") {
			continue
		}
		options := ""
		if key != "" {
			options = "[signed-by=" + strings.Join(strings.Fields(key), ",") + "] "
		}
		for _, uri := range strings.Fields(f["uris"]) {
			for _, s := range strings.Fields(f["suites"]) {
				if usable(uri) && belongs(s, suite) {
					out = append(out, strings.TrimSpace("deb "+options+uri+" "+s+" "+strings.Join(strings.Fields(f["components"]), " ")))
				}
			}
		}
	}
	return out
}

func stanzaFields(stanza string) map[string]string {
	f := map[string]string{}
	last := ""
	for line := range strings.Lines(stanza) {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			f[last] += " " + strings.TrimSpace(line)
		default:
			k, v, ok := strings.Cut(line, ":")
			if ok {
				last = strings.ToLower(strings.TrimSpace(k))
				f[last] = strings.TrimSpace(v)
			}
		}
	}
	return f
}

// usable refuses addresses that carry a password, and this machine's own files.
func usable(uri string) bool {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok || scheme == "file" || scheme == "cdrom" {
		return false
	}
	host, _, _ := strings.Cut(rest, "/")
	return !strings.Contains(host, "@")
}
