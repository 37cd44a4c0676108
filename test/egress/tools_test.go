package egress

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/boxenv"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// The tools that tasks use work in a box through the operator's bundles, and without them fail at once in words that name
// the policy; the record names what was missing.
func TestToolsInABox(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bundles.yaml")
	var lines []string
	for _, name := range []string{"pypi", "npm", "go", "git", "apt"} {
		lines = append(lines, "  "+name+": {allowed_domains: ["+name+".corp.test]}")
	}
	if err := os.WriteFile(file, []byte("bundles:\n"+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	toolchain := goroot(t)
	r := start(t, "  bundles: "+file, "data_mounts: ["+toolchain+"]")
	r.DNS.Set("*.corp.test", egresstest.GoodAddr)
	h := egresstest.Packages(t, dir)
	r.HTTP(egresstest.GoodAddr+":443", true, h)
	r.HTTP(egresstest.GoodAddr+":80", false, h)

	// The world's authority, and those that the box trusts already, among them its project's.
	const authorities = "/workspace/authorities.pem"
	env := map[string]string{"GOPROXY": "https://go.corp.test", "GOSUMDB": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOPATH": "/workspace/go", "GOCACHE": "/workspace/gocache", "GIT_TERMINAL_PROMPT": "0"}
	s, err := r.c.Create(t.Context(), dsec.CreateOptions{Env: env, SpecYAML: `{mem_limit: 1Gi, fs: {mounts: ["` + toolchain + `:/opt/go"]}, network: {egress_policy: deny, preflight: "off", phases: {
  setup: {egress_policy: whitelist, allowed_domains: ["unrelated.test"]},
  agent: {egress_policy: whitelist, bundles: {pypi: true, npm: true, go: true, git: true, apt: true}}}}}`})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteFile(t.Context(), "/workspace/world.pem", strings.NewReader(string(r.CA.PEM)), dsec.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, code := r.sh(s, "cat $SSL_CERT_FILE /workspace/world.pem > "+authorities); code != 0 {
		t.Fatal(out)
	}
	prepare := "export PATH=$PATH:/opt/go/bin " + strings.Join(boxenv.Trust(authorities), " ") + "; "
	tools := []struct{ probe, host, script string }{
		{"curl --version", "npm.corp.test", "curl -sS --fail-with-body https://npm.corp.test/hello"},
		{"python3 -m pip --version", "pypi.corp.test", "python3 -m pip download -q --no-deps --no-cache-dir --index-url https://pypi.corp.test/simple/ --no-input -d /workspace/wheels standin"},
		{"npm --version", "npm.corp.test", "cd /workspace && npm --registry https://npm.corp.test/ --cache /workspace/npm pack standin"},
		{"go version", "go.corp.test", "mkdir -p /workspace/mod && cd /workspace/mod && { [ -f go.mod ] || echo module x.test > go.mod; } && go mod download corp.test/m@v1.0.0"},
		{"git --version", "git.corp.test", "git ls-remote --exit-code https://git.corp.test/git/x.git main"},
		{"apt-get --version", "apt.corp.test", `cd /workspace && mkdir -p apt/lists/partial apt/archives/partial && touch apt/status && echo "deb [trusted=yes] http://apt.corp.test/debian x main" > sources.list &&
apt-get -q -o Dir::Etc::sourcelist=/workspace/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State=/workspace/apt -o Dir::State::status=/workspace/apt/status -o Dir::Cache=/workspace/apt \
-o APT::Sandbox::User= -o Acquire::Retries=0 -o Acquire::Languages=none -o APT::Update::Error-Mode=any update`},
	}
	var have []int
	var absent []string
	for i, tool := range tools {
		name := strings.Fields(tool.probe)[0]
		out, code := r.sh(s, prepare+tool.probe)
		switch {
		case code == 0:
			have = append(have, i)
		case onlyWhereInstalled[name] && !isFile("/usr/bin/"+name):
			absent = append(absent, name)
		default:
			t.Errorf("%s does not run in a box (scripts/deps.sh installs what is missing): %s", tool.probe, lastLine(out))
		}
	}
	if len(absent) > 0 {
		t.Logf("not installed on this machine, not tried: %s", strings.Join(absent, ", "))
	}
	for _, i := range have {
		began := time.Now()
		out, code := r.sh(s, prepare+tools[i].script)
		took := time.Since(began)
		figure(t, "%s refused in %v", tools[i].probe, took.Round(time.Millisecond))
		if code == 0 || took > slow {
			t.Errorf("%s without its bundle: exit %d in %v: %s", tools[i].probe, code, took, out)
		}
		if !strings.Contains(out, "egress policy") || !strings.Contains(out, tools[i].host) || !strings.Contains(out, "dsec net explain "+s.ID()) {
			t.Errorf("%s does not name the policy: %s", tools[i].probe, out)
		}
		if out, err := r.cli("net", "explain", s.ID()); err != nil || !strings.Contains(out, tools[i].host) {
			t.Errorf("explain does not name %s: %v %s", tools[i].host, err, out)
		}
	}
	if out, err := r.cli("net", "switch", s.ID(), "agent"); err != nil {
		t.Fatalf("switch: %v %s", err, out)
	}
	for _, i := range have {
		began := time.Now()
		if out, code := r.sh(s, prepare+tools[i].script); code != 0 {
			t.Errorf("%s through its bundle: exit %d: %s", tools[i].probe, code, out)
		}
		figure(t, "%s worked in %v", tools[i].probe, time.Since(began).Round(time.Millisecond))
	}
}

// onlyWhereInstalled are the tools that scripts/deps.sh does not see to: npm alone is 400 packages, and apt is Debian's.
var onlyWhereInstalled = map[string]bool{"npm": true, "apt-get": true}

func isFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// slow is far above the second in which a tool is refused on a calm machine.
const slow = 20 * time.Second

// goroot is where the toolchain is that runs this test.
func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(out))
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	return root
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
