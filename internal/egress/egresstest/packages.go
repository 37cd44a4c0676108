package egresstest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"testing"
)

// Packages serves what curl, pip, npm, go, git and apt ask for, all of it made here: standin of pip and npm,
// corp.test/m of Go, /git/x.git, an empty Debian repository, and /hello. It writes below dir.
func Packages(t testing.TB, dir string) http.Handler {
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
