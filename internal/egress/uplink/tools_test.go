package uplink

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/boxenv"
	"github.com/dsec-platform/dsec/internal/egress/bundle"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/link"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// run runs a program in the box, with the box's resolv.conf and the lab's authority.
func (b *testBox) run(home string, args ...string) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	script := `mount --bind "$HOME/resolv.conf" /etc/resolv.conf && exec "$@"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Dir = home
	cmd.Env = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "PYENV_ROOT=" + os.Getenv("PYENV_ROOT"), "GIT_TERMINAL_PROMPT=0",
		"GOPATH=" + home + "/go", "GOCACHE=" + home + "/gocache", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local"}, boxenv.Impatient()...)
	cmd.Env = append(cmd.Env, boxenv.Trust(home+"/ca.pem")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := b.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), time.Since(start), err
}

// slow is far above the second in which a tool fails on a calm machine.
const slow = 15 * time.Second

// Real tools find their servers by the bundles that their own configuration makes, and nothing else.
func TestToolsThroughBundles(t *testing.T) {
	w, own := newTrusted(t)
	home := t.TempDir()
	files := map[string]string{
		"resolv.conf": link.ResolvConf, "ca.pem": string(w.CA.PEM) + string(own),
		"root/etc/pip.conf":         "[global]\nindex-url = https://pip.corp.test/simple/\n",
		"root/etc/npmrc":            "registry=https://npm.corp.test/\n",
		"root/root/.config/go/env":  "GOPROXY=https://go.corp.test\nGOSUMDB=off\n",
		"root/etc/gitconfig":        "[url \"https://git.corp.test/git/\"]\n\tinsteadOf = https://example.com/\n",
		"root/etc/apt/sources.list": "deb [trusted=yes] http://deb.corp.test/debian x main\n",
		"apt/lists/partial/.keep":   "", "apt/archives/partial/.keep": "", "apt/status": "",
		"mod/go.mod": "module x.test\n",
	}
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := egresstest.Packages(t, t.TempDir())
	w.HTTP(egresstest.GoodAddr+":443", true, h)
	w.HTTP(egresstest.GoodAddr+":80", false, h)
	w.DNS.Set("*.corp.test", egresstest.GoodAddr)

	bundles := bundle.Derive(os.DirFS(home+"/root"), nil)
	root := home + "/root/"
	apt := []string{"apt-get", "-q", "-o", "Dir::Etc::sourcelist=" + root + "etc/apt/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::State=" + home + "/apt",
		"-o", "Dir::State::status=" + home + "/apt/status", "-o", "Dir::Cache=" + home + "/apt", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=0", "-o", "Acquire::Languages=none",
		"-o", "APT::Update::Error-Mode=any", "update"}
	for _, tc := range []struct {
		tool, bundle string
		args         []string
	}{
		{"curl", "npm", []string{"curl", "-sS", "--fail-with-body", "https://npm.corp.test/hello"}},
		{"python3", "pypi", []string{"env", "PIP_CONFIG_FILE=" + root + "etc/pip.conf", "python3", "-m", "pip", "download", "-q", "--no-deps", "-d", home + "/wheels", "standin"}},
		{"npm", "npm", []string{"npm", "--globalconfig", root + "etc/npmrc", "--cache", home + "/npm", "pack", "standin"}},
		{"go", "go", []string{"env", "GOENV=" + root + "root/.config/go/env", "go", "-C", home + "/mod", "mod", "download", "-x", "corp.test/m@v1.0.0"}},
		{"git", "git", []string{"env", "GIT_CONFIG_SYSTEM=" + root + "etc/gitconfig", "git", "ls-remote", "--exit-code", "https://example.com/x.git", "main"}},
		{"apt-get", "apt", apt},
	} {
		t.Run(tc.tool, func(t *testing.T) {
			if _, err := exec.LookPath(tc.tool); err != nil {
				t.Skip(tc.tool + " is not installed")
			}
			p, err := policy.Compile(policy.Spec{Mode: policy.Whitelist, Bundles: map[string]bool{tc.bundle: true}}, policy.Options{Bundles: bundles})
			if err != nil {
				t.Fatal(err)
			}
			b := w.attachAs(whitelist(t, []string{"unrelated.test"}), true)
			out, took, err := b.run(home, tc.args...)
			if err == nil {
				t.Errorf("without its bundle it worked: %s", out)
			}
			t.Logf("refused in %v: %s", took, out)
			if !strings.Contains(out, "egress policy") || !strings.Contains(out, ".corp.test") {
				t.Errorf("its message does not name the policy: %s", out)
			}
			if took > slow {
				t.Errorf("it took %v to fail", took)
			}
			if err := b.Switch(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			out, took, err = b.run(home, tc.args...)
			if err != nil {
				t.Errorf("with its bundle: %v\n%s", err, out)
			}
			t.Logf("worked in %v", took)
		})
	}
}
