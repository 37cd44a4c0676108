package bundle

import (
	"testing"
	"testing/fstest"

	"github.com/dsec-platform/dsec/internal/egress/policy"
)

func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for p, text := range files {
		out[p] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestDerive(t *testing.T) {
	got := Derive(tree(map[string]string{
		"etc/pip.conf":                          "[global]\n# x\nindex-url = https://mirror.corp.test/simple/\nextra-index-url =\n    https://extra.corp.test:8443/simple\n    http://10.1.2.3:8080/simple\ntrusted-host = other.test\ntimeout = 5\n",
		"root/.npmrc":                           "registry=https://npm.corp.test/\n@team:registry=\"http://team.corp.test:4873\"\n//npm.corp.test/:_authToken=secret\n",
		"usr/local/go/go.env":                   "GOPROXY=https://goproxy.corp.test|direct\nGOSUMDB=sum.corp.test+abc\n",
		"etc/apt/sources.list":                  "# deb http://no.test x\ndeb [signed-by=/a arch=amd64] http://deb.corp.test/debian bookworm main\ndeb cdrom:[x]/ y\n",
		"etc/apt/sources.list.d/debian.sources": "Types: deb\nURIs: https://sec.corp.test/debian\n  http://second.corp.test\nSuites: x\n\nEnabled: no\nURIs: http://disabled.test\n",
		"home/user/.gitconfig":                  "[user]\n\tname = x\n[url \"https://git.corp.test/\"]\n\tinsteadOf = https://example.com/\n[remote \"o\"]\n url = ssh://git@ssh.corp.test:2222/x\n",
		"home/user/.config/uv/uv.toml":          "[[index]]\nurl = \"https://uv.corp.test/simple\"\n",
	}), []string{"PIP_INDEX_URL=https://env.corp.test/simple", "PATH=/bin", "GOPROXY=off"})
	want := map[string][]string{
		"pypi": {"mirror.corp.test:443/tls", "extra.corp.test:8443/tls", "uv.corp.test:443/tls", "env.corp.test:443/tls"},
		"npm":  {"npm.corp.test:443/tls", "team.corp.test:4873/http"},
		"go":   {"goproxy.corp.test:443/tls", "sum.corp.test:443/tls"},
		"apt":  {"deb.corp.test:80/http", "sec.corp.test:443/tls", "second.corp.test:80/http"},
		"git":  {"git.corp.test:443/tls", "ssh.corp.test:2222/tcp"},
	}
	for name, rules := range want {
		b := got[name]
		if len(b.Domains) != len(rules) {
			t.Errorf("%s: %v, want %v", name, b.Domains, rules)
			continue
		}
		for i, d := range b.Domains {
			if d.String() != rules[i] {
				t.Errorf("%s: %s, want %s", name, d, rules[i])
			}
		}
		if b.Source == "" {
			t.Errorf("%s does not say where it is from", name)
		}
	}
	if ips := got["pypi"].IPs; len(ips) != 1 || ips[0].String() != "10.1.2.3:8080" {
		t.Errorf("addresses: %v", ips)
	}
	if len(got) != len(want) {
		t.Errorf("%d bundles", len(got))
	}
}

func TestNothingIsCompiledIn(t *testing.T) {
	if got := Derive(fstest.MapFS{}, nil); len(got) != 0 {
		t.Errorf("an empty template has %v", got)
	}
}

func TestOperatorFile(t *testing.T) {
	got, err := Parse("bundles.yaml", []byte("bundles:\n  pypi:\n    allowed_domains: [\"a.corp.test\", \"*.files.corp.test:443\"]\n    allowed_ips: [\"10.0.0.1:80\"]\n"))
	if err != nil || len(got["pypi"].Domains) != 2 || got["pypi"].Source != "operator" {
		t.Fatalf("%+v, %v", got, err)
	}
	m := Merge(got, map[string]policy.Bundle{"pypi": {Domains: []policy.Domain{{Name: "t.test"}}, Source: "template: /etc/pip.conf"}, "npm": {}})
	if len(m) != 2 || len(m["pypi"].Domains) != 3 || m["pypi"].Source != "operator, template: /etc/pip.conf" {
		t.Errorf("%+v", m)
	}
	for name, text := range map[string]string{
		"unknown field": "bundles:\n  a:\n    domains: [x.test]\n", "a URL": "bundles:\n  a:\n    allowed_domains: [\"https://x.test/\"]\n",
		"loopback": "bundles:\n  a:\n    allowed_ips: [\"127.0.0.1\"]\n",
	} {
		if _, err := Parse("b.yaml", []byte(text)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzDerive(f *testing.F) {
	f.Add("[global]\nindex-url = https://a.test\n")
	f.Add("deb [x] http://a.test b\nURIs: http://b.test\n c\n[url \"https://x.test\"]\n")
	f.Fuzz(func(t *testing.T, text string) {
		files := map[string]string{}
		for _, p := range []string{"etc/pip.conf", "root/.npmrc", "root/.config/go/env", "etc/apt/sources.list", "etc/apt/sources.list.d/a.sources", "etc/gitconfig", "etc/uv/uv.toml"} {
			files[p] = text
		}
		all := Derive(tree(files), []string{"GOPROXY=" + text})
		want := map[string]bool{}
		for n := range all {
			want[n] = true
		}
		// Whatever a template says, its bundles are rules that compile.
		if _, err := policy.Compile(policy.Spec{Mode: policy.Whitelist, Bundles: want}, policy.Options{Bundles: all}); err != nil {
			t.Fatal(err)
		}
	})
}
