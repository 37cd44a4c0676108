package bundle

import (
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/egress/policy"
)

const maxFile = 1 << 20

// source is where a tool looks for its configuration, and how it is read.
type source struct {
	bundle string
	globs  []string // below the root; ~ is every home
	read   func(text string) []string
}

var sources = []source{
	{"pypi", []string{"etc/pip.conf", "etc/xdg/pip/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf", "usr/pip.conf", "usr/local/pip.conf"}, pipURLs},
	{"pypi", []string{"etc/uv/uv.toml", "~/.config/uv/uv.toml"}, tomlURLs},
	{"npm", []string{"etc/npmrc", "usr/etc/npmrc", "usr/local/etc/npmrc", "~/.npmrc"}, npmURLs},
	{"go", []string{"usr/local/go/go.env", "usr/lib/go/go.env", "usr/lib/go-*/go.env", "~/.config/go/env"}, goURLs},
	{"apt", []string{"etc/apt/sources.list", "etc/apt/sources.list.d/*.list"}, aptURLs},
	{"apt", []string{"etc/apt/sources.list.d/*.sources"}, deb822URLs},
	{"git", []string{"etc/gitconfig", "~/.gitconfig", "~/.config/git/config"}, gitURLs},
}

// variables are those by which the same tools are configured.
var variables = []struct {
	name, bundle string
	read         func(value string) []string
}{
	{"PIP_INDEX_URL", "pypi", strings.Fields}, {"PIP_EXTRA_INDEX_URL", "pypi", strings.Fields}, {"PIP_FIND_LINKS", "pypi", strings.Fields},
	{"UV_INDEX_URL", "pypi", strings.Fields}, {"UV_DEFAULT_INDEX", "pypi", strings.Fields},
	{"npm_config_registry", "npm", strings.Fields}, {"NPM_CONFIG_REGISTRY", "npm", strings.Fields},
	{"GOPROXY", "go", proxyList}, {"GOSUMDB", "go", sumDB},
}

// Derive makes bundles from a template's file tree and environment ("K=V"). What cannot be read is left out:
// the files are the template's, and nothing depends on their being right but what they allow.
func Derive(root fs.FS, env []string) map[string]policy.Bundle {
	out := map[string]policy.Bundle{}
	for _, s := range sources {
		for _, g := range s.globs {
			for _, p := range expand(root, g) {
				if text, ok := read(root, p); ok {
					add(out, s.bundle, "template: /"+p, s.read(text))
				}
			}
		}
	}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		for _, x := range variables {
			if k == x.name {
				add(out, x.bundle, "template: variable "+k, x.read(v))
			}
		}
	}
	return out
}

func expand(root fs.FS, glob string) []string {
	globs := []string{glob}
	if rest, ok := strings.CutPrefix(glob, "~/"); ok {
		globs = []string{"root/" + rest, "home/*/" + rest}
	}
	var out []string
	for _, g := range globs {
		if found, err := fs.Glob(root, g); err == nil {
			out = append(out, found...)
		}
	}
	return out
}

func read(root fs.FS, p string) (string, bool) {
	st, err := fs.Stat(root, p)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxFile {
		return "", false
	}
	f, err := root.Open(p)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err == nil
}

// add turns URLs into rules of a bundle, each once.
func add(out map[string]policy.Bundle, name, from string, urls []string) {
	b := out[name]
	found := false
	for _, u := range urls {
		d, r, ok := rule(u)
		switch {
		case !ok:
			continue
		case r.CIDR != "":
			if !slices.Contains(b.IPs, r) {
				b.IPs = append(b.IPs, r)
			}
		default:
			if !slices.Contains(b.Domains, d) {
				b.Domains = append(b.Domains, d)
			}
		}
		found = true
	}
	if !found {
		return
	}
	if b.Source != "" && !strings.Contains(b.Source, from) {
		from = b.Source + ", " + from
	}
	b.Source = from
	out[name] = b
}

var schemes = map[string]struct {
	port  string
	proto policy.Protocol
}{"https": {"443", policy.TLS}, "http": {"80", policy.HTTP}, "ssh": {"22", policy.TCP}, "git": {"9418", policy.TCP}}

// rule makes the rule for a URL's host; it must compile as one.
func rule(text string) (d policy.Domain, r policy.Range, ok bool) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return d, r, false
	}
	scheme, known := schemes[u.Scheme]
	if !known {
		return d, r, false
	}
	port := u.Port()
	if port == "" {
		port = scheme.port
	}
	s := policy.Spec{Mode: policy.Whitelist}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		r = policy.Range{CIDR: a.String(), Ports: port}
		s.IPs = []policy.Range{r}
	} else {
		name, _ := policy.Fold(u.Hostname())
		d = policy.Domain{Name: name, Ports: port, Protocol: scheme.proto}
		s.Domains = []policy.Domain{d}
	}
	_, err = policy.Compile(s, policy.Options{})
	return d, r, err == nil
}
