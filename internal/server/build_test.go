package server

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	"github.com/dsec-platform/dsec/internal/template"
	"github.com/dsec-platform/dsec/internal/template/dockerfile"
)

// works is a node's builds with real boxes over a Debian root file system.
type works struct {
	t         *testing.T
	dir       string
	rt        runtime.Runtime
	templates *template.Local
	builds    *build.Service
}

const project = "default"

var who = build.Who{Project: project, Operator: true}

func debian(t *testing.T) string {
	t.Helper()
	if f := os.Getenv("DSEC_TEST_ROOTFS"); f != "" {
		return f
	}
	out, err := exec.Command("../../scripts/debian-rootfs.sh").Output()
	if err != nil {
		t.Skipf("no Debian root file system to build on: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func newWorks(t *testing.T, with template.Registries) *works {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: boxes")
	}
	w := &works{t: t, dir: t.TempDir()}
	var err error
	if w.rt, err = native.New(native.Options{DataDir: w.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if orphans, err := w.rt.Sweep(context.Background(), func(string) bool { return false }); err != nil || len(orphans) > 0 {
			t.Errorf("builds have left %v, %v", orphans, err)
		}
		w.rt.Close()
	})
	if p := w.rt.Probe(t.Context()); !p.OK {
		t.Skipf("no boxes here: %+v", p.Missing)
	}
	if w.templates, err = template.Open(w.dir, template.Options{Builder: Builder{Runtime: w.rt}, Registries: with}); err != nil {
		t.Fatal(err)
	}
	w.open()
	t.Cleanup(func() { w.builds.Close() })
	return w
}

func (w *works) open() {
	w.t.Helper()
	var err error
	if w.builds, err = build.Open(build.Config{Dir: filepath.Join(w.dir, "builds"), Templates: w.templates, Importer: w.templates}); err != nil {
		w.t.Fatal(err)
	}
}

// start requests and starts a build.
func (w *works) start(name string, r build.Recipe, tags ...string) *build.Build {
	w.t.Helper()
	_, b, err := w.builds.Request(w.t.Context(), project, build.Request{Name: name, Tags: tags})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.builds.Start(w.t.Context(), project, b.Template, b.ID, r); err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *works) wait(b *build.Build) *build.Build {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	got, err := w.builds.Wait(ctx, project, b.Template, b.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *works) log(b *build.Build) string {
	w.t.Helper()
	all, err := w.builds.Log(project, b.Template, b.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	var out strings.Builder
	for _, e := range all {
		fmt.Fprintf(&out, "%d %s %s\n", e.Step, e.Level, e.Message)
	}
	return out.String()
}

// ready wants the build to succeed.
func (w *works) ready(b *build.Build) *build.Build {
	w.t.Helper()
	got := w.wait(b)
	if got.Status != build.Ready {
		w.t.Fatalf("%s: %s at step %d\n%s", got.Status, got.Reason, got.Step, w.log(b))
	}
	return got
}

// in runs a script in a box of a version, as its user, and gives what it wrote.
func (w *works) in(ref, script string) string {
	w.t.Helper()
	tpl, root, release, err := w.templates.Resolve(w.t.Context(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	defer release()
	var out bytes.Buffer
	run := template.BuildRun{Root: root, Argv: []string{"/bin/sh", "-c", script}, Env: tpl.Env, Cwd: tpl.Cwd, User: tpl.User, Output: &out}
	if err := (Builder{Runtime: w.rt}).RunInBox(w.t.Context(), run, func(string) error { return nil }); err != nil {
		w.t.Errorf("%s: %v", script, err)
	}
	return out.String()
}

func files(t *testing.T, entries ...tar.Header) template.FileArchive {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range entries {
		data := h.Linkname
		if h.Typeflag == 0 {
			h.Typeflag, h.Linkname, h.Size = tar.TypeReg, "", int64(len(data))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(tw, data)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	return template.FileArchive{Digest: hex.EncodeToString(sum[:]), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }}
}

func fromDockerfile(t *testing.T, text string, f template.FileArchive) build.Recipe {
	t.Helper()
	p, err := dockerfile.Parse([]byte(text), dockerfile.Options{Files: f})
	if err != nil {
		t.Fatal(err)
	}
	return build.Recipe{Template: p.From, Steps: p.Steps, Start: p.Start, Notes: p.Notes, Privileged: true}
}

// A Dockerfile gives what Docker would: files and their owners, variables, directory, user.
func TestDockerfileBuilds(t *testing.T) {
	w := newWorks(t, template.Registries{})
	if _, err := w.templates.Import(t.Context(), template.ImportRequest{Name: "debian", Source: template.Source{Kind: template.Tar, Ref: debian(t)}}); err != nil {
		t.Fatal(err)
	}
	f := files(t, tar.Header{Name: "app/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 4242}, tar.Header{Name: "app/main.py", Linkname: "print('it works')", Uid: 4242},
		tar.Header{Name: "app/sub/data.txt", Linkname: "data"}, tar.Header{Name: "app/link", Typeflag: tar.TypeSymlink, Linkname: "main.py"},
		tar.Header{Name: "a.txt", Linkname: "a"}, tar.Header{Name: "b.txt", Linkname: "b"}, tar.Header{Name: "secret", Linkname: "x"})
	const text = `FROM debian
ARG WHO=world
ENV GREETING="hello $WHO" PATH=$PATH:/opt/bin
RUN echo app:x:4711:4711::/home/app:/bin/sh >>/etc/passwd && echo app:x:4711: >>/etc/group && mkdir -m 755 /home/app && chown app:app /home/app && mkdir -p /opt/bin && printf '#!/bin/sh\necho tool\n' >/opt/bin/tool && chmod +x /opt/bin/tool
WORKDIR /srv/app
COPY app/ .
COPY --chown=app:app --chmod=0600 *.txt /data/
COPY a.txt /bin/renamed
RUN mv /data /moved && ln -s /moved /elsewhere
COPY b.txt /elsewhere/new/
USER app
RUN id -un >/tmp/who; touch ~/mine
WORKDIR made
CMD ["python3", "-m", "http.server"]
LABEL a=b
`
	b := w.start("My_App", fromDockerfile(t, text, f))
	got := w.ready(b)
	script := `echo $GREETING; tool; pwd; id -un; cat ../main.py; readlink ../link; cat ../sub/data.txt; stat -c '%u %a %n' ../main.py ../sub /moved/a.txt /srv /bin/renamed . /home/app/mine
ls /moved /elsewhere/new /secret /data 2>&1 | tr '\n' ' '; test -L /bin && echo link`
	want := `hello world
tool
/srv/app/made
app
print('it works')main.py
data0 644 ../main.py
0 755 ../sub
ID 600 /moved/a.txt
0 755 /srv
0 644 /bin/renamed
ID 755 .
ID 644 /home/app/mine
`
	out := w.in(got.Ref, script)
	id := strings.TrimSpace(w.in(got.Ref, "id -u"))
	if want = strings.ReplaceAll(strings.Replace(want, "data0", "data0", 1), "ID", id); !strings.HasPrefix(out, want) {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	for _, part := range []string{"a.txt", "b.txt", "new", "cannot access '/secret'", "cannot access '/data'", "link"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	tpl, err := w.templates.Get(t.Context(), got.Ref)
	if err != nil || tpl.Start.Command != "python3 -m http.server" || tpl.User != "app" || tpl.Spec.User != "app" || tpl.Cwd != "/srv/app/made" {
		t.Errorf("%+v, %v", tpl, err)
	}
	if log := w.log(b); !strings.Contains(log, "line 15: LABEL is noted") || !strings.Contains(log, "info line 4: RUN echo app") {
		t.Errorf("log:\n%s", log)
	}
	// Again nothing runs but the start command, and the version is the same one.
	begun := time.Now()
	again := w.start("My_App", fromDockerfile(t, text, f))
	if r := w.ready(again); r.Ref != got.Ref || strings.Count(w.log(again), "info cached\n") != 7 {
		t.Errorf("the second build took %v: %s, %s\n%s", time.Since(begun), r.Ref, got.Ref, w.log(again))
	}
	// What is built on it begins where it ended.
	more := w.ready(w.start("more", build.Recipe{Template: "My_App", Steps: []template.Step{{Kind: template.StepRun, Script: "echo $GREETING >out", Label: "step 1"}}}))
	if out := w.in(more.Ref, "cat /srv/app/made/out; stat -c %U /srv/app/made/out"); out != "hello world\napp\n" {
		t.Errorf("built on it: %q", out)
	}
	failures(t, w)
	concurrent(t, w)
	restarts(t, w)
}

// failures name the step, keep what went before it, and leave no version.
func failures(t *testing.T, w *works) {
	step := func(s template.Step) build.Recipe {
		s.Label = "step 2"
		return build.Recipe{Template: "debian", Steps: []template.Step{{Kind: template.StepEnv, Env: []string{"A=1"}, Label: "step 1"}, s}}
	}
	run := func(script string) template.Step { return template.Step{Kind: template.StepRun, Script: script} }
	none := files(t, tar.Header{Name: "x", Linkname: "x"})
	for want, r := range map[string]build.Recipe{
		"ended with exit code 3":   step(run("echo why >&2; exit 3")),
		"no such user":             step(template.Step{Kind: template.StepUser, User: "nobody-knows"}),
		"no file of the build":     step(template.Step{Kind: template.StepCopy, Copy: &template.CopyStep{Files: none, Sources: []string{"y*"}, Dest: "/y"}}),
		"is a directory and":       step(template.Step{Kind: template.StepCopy, Copy: &template.CopyStep{Files: files(t, tar.Header{Name: "d/etc", Linkname: "x"}), Sources: []string{"d"}, Dest: "/"}}),
		"Network is unreachable":   step(run("python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 5)' 2>&1 | tail -1 | grep -o 'Network is unreachable' >&2; exit 1")),
		"before the box was ready": {Template: "debian", Steps: step(run("true")).Steps, Start: template.StartCommand{Command: "sleep 0.1; exit 4", Ready: "false"}},
	} {
		b := w.start("failing", r)
		got := w.wait(b)
		step := 2
		if !r.Start.IsZero() {
			step = 3
		}
		if got.Status != build.Failed || got.Step != step || !strings.Contains(got.Reason+w.log(b), want) {
			t.Errorf("%s: %s at step %d: %s\n%s", want, got.Status, got.Step, got.Reason, w.log(b))
		}
	}
	if _, err := w.builds.Resolve(t.Context(), who, "failing"); err == nil || !strings.Contains(err.Error(), "no build of it has succeeded") {
		t.Errorf("a template without a version: %v", err)
	}
	if got := w.wait(w.start("failing", build.Recipe{Template: "no-such"})); got.Status != build.Failed || got.Step != 0 {
		t.Errorf("an unknown base: %+v", got)
	}
	// A start command that comes up.
	server := template.StartCommand{Command: "python3 -m http.server 8000", Ready: "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8000\")'"}
	got := w.ready(w.start("serving", build.Recipe{Template: "debian", Start: server}))
	if tpl, err := w.templates.Get(t.Context(), got.Ref); err != nil || tpl.Start.Ready != server.Ready {
		t.Errorf("%+v, %v", tpl, err)
	}
	b := w.start("cancelled", build.Recipe{Template: "debian", Steps: []template.Step{{Kind: template.StepRun, Script: "echo up; sleep 100", Label: "step 1"}}})
	for deadline := time.Now().Add(time.Minute); !strings.Contains(w.log(b), "info up"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the build does not run")
		}
	}
	if err := w.builds.Cancel(project, b.Template, b.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.wait(b); got.Reason != "it was cancelled" {
		t.Errorf("%+v", got)
	}
}

// Builds of one alias do not disturb each other: each succeeds, and the last to finish is what the alias means.
func concurrent(t *testing.T, w *works) {
	var builds []*build.Build
	for i := range 4 {
		step := template.Step{Kind: template.StepRun, Label: "step 1", Script: fmt.Sprintf("echo %d >/n; sleep 0.%d", i, 4-i)}
		builds = append(builds, w.start("shared", build.Recipe{Template: "debian", Steps: []template.Step{step}}))
	}
	var last *build.Build
	for _, b := range builds {
		if got := w.ready(b); last == nil || got.Finished.After(last.Finished) {
			last = got
		}
	}
	got, err := w.builds.Resolve(t.Context(), who, "shared")
	if err != nil || got.Template.Ref() != last.Ref {
		t.Errorf("%+v, %v, want %s", got, err, last.Ref)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // the removal follows the build
		versions, err := w.templates.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, v := range versions {
			if v.Name == last.Template {
				n++
			}
		}
		if n <= 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d versions are kept", n)
		}
	}
	for _, b := range builds[2:] { // a version is what it was, as long as it is kept
		b := w.wait(b)
		if got, err := w.builds.Resolve(t.Context(), who, b.Ref); err == nil && got.Template.Ref() != b.Ref {
			t.Errorf("%s means %s", b.Ref, got.Template.Ref())
		}
	}
	// Another project's alias of that name is another template, and this one is none of its affairs.
	other := build.Who{Project: "other"}
	for _, ref := range []string{"shared", last.Template} {
		if _, err := w.builds.Resolve(t.Context(), other, ref); err == nil {
			t.Errorf("another project may use %s", ref)
		}
	}
	if !w.builds.Hidden(other, last.Template) || w.builds.Hidden(who, last.Template) || w.builds.Hidden(other, "debian") {
		t.Error("a template is hidden from others and from nobody else, and the node's is from nobody")
	}
	for _, asker := range []build.Who{who, {Project: "any", Operator: true}} {
		if project, alias := w.builds.Owner(asker, last.Template); project != who.Project || alias != "shared" {
			t.Errorf("%+v is told that it is %s's %s", asker, project, alias)
		}
	}
	if project, alias := w.builds.Owner(other, last.Template); project+alias != "" {
		t.Errorf("another project is told that it is %s's %s", project, alias)
	}
	theirs, asked, err := w.builds.Request(t.Context(), "other", build.Request{Name: "shared"})
	if err != nil || theirs.ID == last.Template {
		t.Errorf("%+v, %v", theirs, err)
	}
	if err := w.builds.Start(t.Context(), "other", theirs.ID, asked.ID, build.Recipe{Image: "e2bdev/" + last.Template}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.builds.Wait(t.Context(), "other", theirs.ID, asked.ID); err != nil || got.Status != build.Failed {
		t.Errorf("another project builds upon %s: %+v, %v", last.Template, got, err)
	}
	if _, err := w.builds.SetPublic(project, "shared", true); err != nil {
		t.Fatal(err)
	}
	if got, err := w.builds.Resolve(t.Context(), other, last.Template); err != nil || got.Template.Ref() != last.Ref {
		t.Errorf("a public template: %+v, %v", got, err)
	}
}

// What was built is there after a restart; what was being built is in error and leaves nothing.
func restarts(t *testing.T, w *works) {
	if _, err := w.builds.Tag(project, "shared", []string{"v1"}); err != nil {
		t.Fatal(err)
	}
	b := w.start("cut", build.Recipe{Template: "debian", Steps: []template.Step{{Kind: template.StepRun, Script: "sleep 100", Label: "step 1"}}})
	_, waiting, err := w.builds.Request(t.Context(), project, build.Request{Name: "never-started"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.builds.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	if got := w.wait(b); got.Status != build.Failed || !strings.Contains(got.Reason, "stopped") {
		t.Errorf("%+v", got)
	}
	if got, err := w.builds.Build(project, waiting.Template, waiting.ID); err != nil || got.Status != build.Requested {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := w.builds.Resolve(t.Context(), who, "shared:v1"); err != nil || got.Alias != "shared" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := w.builds.Delete(t.Context(), project, "shared"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.builds.Resolve(t.Context(), who, "shared"); err == nil {
		t.Error("a deleted template is found")
	}
}

// An image's reference is a template: imported when first named, by all who name it together once, and
// again only when the registry has another.
func TestImageReferences(t *testing.T) {
	reg := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer reg.Close()
	host := strings.TrimPrefix(reg.URL, "http://")
	w := newWorks(t, template.Registries{Mirrors: map[string]string{"docker.io": host}, Allowed: []string{"docker.io", host}})
	push := func(ref, file string) {
		t.Helper()
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		tw.WriteHeader(&tar.Header{Name: file, Size: 1, Mode: 0o644})
		io.WriteString(tw, "x")
		tw.Close()
		img, err := mutate.AppendLayers(empty.Image, static.NewLayer(b.Bytes(), types.OCIUncompressedLayer))
		if err != nil {
			t.Fatal(err)
		}
		cfg, _ := img.ConfigFile()
		cfg = cfg.DeepCopy()
		cfg.OS, cfg.Architecture, cfg.Config = "linux", goruntime.GOARCH, v1.Config{User: "app", WorkingDir: "/w"}
		if img, err = mutate.ConfigFile(img, cfg); err != nil {
			t.Fatal(err)
		}
		tag, err := name.NewTag(ref)
		if err == nil {
			err = remote.Write(tag, img)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	push(host+"/library/tool:1", "one")
	resolve := func(ref string) string {
		t.Helper()
		got, err := w.builds.Resolve(t.Context(), who, ref)
		if err != nil {
			t.Fatal(err)
		}
		return got.Template.Ref()
	}
	refs := make(chan string, 8)
	for range cap(refs) {
		go func() {
			got, err := w.builds.Resolve(context.Background(), who, "docker.io/library/tool:1")
			if err != nil {
				refs <- err.Error()
				return
			}
			refs <- got.Template.Ref()
		}()
	}
	first := <-refs
	for range cap(refs) - 1 {
		if got := <-refs; got != first {
			t.Errorf("%s and %s", got, first)
		}
	}
	if !strings.HasPrefix(first, "operator-image-tool-1-") {
		t.Errorf("named %s", first)
	}
	// What the node's own credentials opened is nobody else's, also by its name in the store.
	other := build.Who{Project: "other"}
	for _, ref := range []string{first, strings.Split(first, "@")[0]} {
		if got, err := w.builds.Resolve(t.Context(), other, ref); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("another project gets %s: %+v, %v", ref, got, err)
		}
		if id, err := w.builds.Known(t.Context(), other, ref); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("another project knows %s: %s, %v", ref, id, err)
		}
	}
	push(host+"/library/tool:1", "two")
	if got := resolve("docker.io/library/tool:1"); got != first {
		t.Errorf("asked again at once: %s", got)
	}
	if _, err := w.builds.Resolve(t.Context(), who, "ghcr.io/x/y"); err == nil || !strings.Contains(err.Error(), "does not allow the registry ghcr.io") {
		t.Errorf("a registry that is not allowed: %v", err)
	}
	if _, err := w.builds.Resolve(t.Context(), who, host+"/library/none"); err == nil {
		t.Error("an image that is not there")
	}
	// A build from an image begins as its user, who must exist in it.
	b := w.start("on-image", build.Recipe{Image: host + "/library/tool:1", Steps: []template.Step{{Kind: template.StepWorkdir, Dir: "sub", Label: "step 1"}}})
	if got := w.wait(b); got.Status != build.Failed || !strings.Contains(got.Reason, "no such user") {
		t.Errorf("%+v", got)
	}
	b = w.start("on-image", build.Recipe{Image: "library/tool:1", User: "user", Steps: []template.Step{{Kind: template.StepWorkdir, Dir: "sub", Label: "step 1"}}})
	got := w.ready(b)
	tpl, err := w.templates.Get(t.Context(), got.Ref)
	if err != nil || tpl.Cwd != "/w/sub" {
		t.Fatalf("%+v, %v", tpl, err)
	}
	var infos []layer.Info
	for _, l := range tpl.Layers {
		in, err := w.templates.Layers().Get(l.Digest)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, in)
	}
	view, err := layer.OpenView(infos)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	if a, err := view.Stat("w/sub"); err != nil || a.UID != 1000 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := view.Stat("two"); err != nil {
		t.Errorf("the build has the older image: %v", err)
	}
}
