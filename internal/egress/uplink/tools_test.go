package uplink

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/cgi"
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

// site is what the tools' servers serve, all of it made here.
func site(t *testing.T, dir string) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from the stand-in") })
	// pip: an index with one wheel.
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for name, text := range map[string]string{
		"standin.py": "NAME = 'stand-in'\n", "standin-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: standin\nVersion: 1.0\n",
		"standin-1.0.dist-info/WHEEL":  "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"standin-1.0.dist-info/RECORD": "standin.py,,\nstandin-1.0.dist-info/METADATA,,\nstandin-1.0.dist-info/WHEEL,,\nstandin-1.0.dist-info/RECORD,,\n",
	} {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	mux.HandleFunc("/simple/standin/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<a href="/files/standin-1.0-py3-none-any.whl">standin-1.0-py3-none-any.whl</a>`)
	})
	mux.HandleFunc("/files/standin-1.0-py3-none-any.whl", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel.Bytes()) })
	// npm: one package.
	var tgz bytes.Buffer
	gz := gzip.NewWriter(&tgz)
	tw := tar.NewWriter(gz)
	pkg := `{"name":"standin","version":"1.0.0"}`
	_ = tw.WriteHeader(&tar.Header{Name: "package/package.json", Mode: 0o644, Size: int64(len(pkg))})
	_, _ = tw.Write([]byte(pkg))
	_ = tw.Close()
	_ = gz.Close()
	sum := sha512.Sum512(tgz.Bytes())
	mux.HandleFunc("/standin", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"name":"standin","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"standin","version":"1.0.0","dist":{"tarball":"https://npm.corp.test/standin.tgz","integrity":"sha512-%s"}}}}`, base64.StdEncoding.EncodeToString(sum[:]))
	})
	mux.HandleFunc("/standin.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tgz.Bytes()) })
	// go: one module.
	var mod bytes.Buffer
	z = zip.NewWriter(&mod)
	for name, text := range map[string]string{"corp.test/m@v1.0.0/go.mod": "module corp.test/m\n", "corp.test/m@v1.0.0/m.go": "package m\n"} {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, text)
	}
	_ = z.Close()
	mux.HandleFunc("/corp.test/m/@v/", func(w http.ResponseWriter, r *http.Request) {
		switch filepath.Ext(r.URL.Path) {
		case ".info":
			fmt.Fprint(w, `{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`)
		case ".mod":
			fmt.Fprint(w, "module corp.test/m\n")
		case ".zip":
			_, _ = w.Write(mod.Bytes())
		default:
			fmt.Fprintln(w, "v1.0.0")
		}
	})
	// git: a bare repository over smart HTTP.
	if exe, err := exec.LookPath("git"); err == nil {
		repo := filepath.Join(dir, "repos", "x.git")
		for _, args := range [][]string{
			{"init", "-q", "-b", "main", dir + "/work"}, {"-C", dir + "/work", "-c", "user.name=t", "-c", "user.email=t@t.test", "commit", "-q", "--allow-empty", "-m", "first"},
			{"clone", "-q", "--bare", dir + "/work", repo},
		} {
			if out, err := exec.Command(exe, args...).CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v: %s", args, err, out)
			}
		}
		mux.Handle("/git/", &cgi.Handler{Path: exe, Args: []string{"http-backend"}, Root: "/git", Env: []string{"GIT_PROJECT_ROOT=" + filepath.Join(dir, "repos"), "GIT_HTTP_EXPORT_ALL=1", "HOME=" + dir}})
	}
	// apt: an empty but valid repository.
	mux.HandleFunc("/debian/dists/x/Release", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "Origin: t\nSuite: x\nCodename: x\nArchitectures: amd64\nComponents: main\nDate: Mon, 30 Nov 2026 00:00:00 UTC\n")
	})
	mux.HandleFunc("/debian/dists/x/main/binary-amd64/Packages", func(w http.ResponseWriter, _ *http.Request) {})
	return mux
}

// Real tools find their servers by the bundles that their own configuration makes, and nothing else.
func TestToolsThroughBundles(t *testing.T) {
	w := newWorld(t)
	home := t.TempDir()
	files := map[string]string{
		"resolv.conf": link.ResolvConf, "ca.pem": string(w.CA.PEM),
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
	h := site(t, t.TempDir())
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
		{"curl", "npm", []string{"curl", "-sS", "--fail", "https://npm.corp.test/hello"}},
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
			b := w.attach(whitelist(t, []string{"unrelated.test"}))
			out, took, err := b.run(home, tc.args...)
			if err == nil {
				t.Errorf("without its bundle it worked: %s", out)
			}
			t.Logf("refused in %v: %s", took, lastLine(out))
			if took > 30*time.Second {
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

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
