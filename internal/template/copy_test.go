package template

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

func archiveOf(t testing.TB, pairs ...string) FileArchive {
	t.Helper()
	b := tarOf(t, pairs...)
	return FileArchive{Digest: fmt.Sprint(pairs), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// What COPY puts where, as Docker does, links of the environment followed.
func TestCopyPlaces(t *testing.T) {
	needRoot(t)
	s := open(t, t.TempDir(), Options{})
	base := rootfs(t, tar.Header{Typeflag: tar.TypeDir, Name: "srv/", Mode: 0o711, Uid: 7, Gid: 8}, tar.Header{Typeflag: tar.TypeSymlink, Name: "var/run", Linkname: "/run"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "dangling", Linkname: "srv/later"}, tar.Header{Typeflag: tar.TypeReg, Name: "plain", Mode: 0o600},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "round", Linkname: "round"})
	if _, err := s.Import(t.Context(), ImportRequest{Name: "base", Source: tarFile(t, base)}); err != nil {
		t.Fatal(err)
	}
	files := archiveOf(t, "a", "1", "b", "2", "d/x", "3", "d/sub/y.py", "4", "d/z.py", "5")
	for _, c := range []struct {
		from []string
		to   string
		want string // names, or part of an error
	}{
		{[]string{"a"}, "/new", "new"},
		{[]string{"a"}, "/new/", "new/a"},
		{[]string{"a"}, "/srv", "srv/a"},
		{[]string{"a", "b"}, "/new", "new/a new/b"},
		{[]string{"d"}, "/new", "new/sub/y.py new/x new/z.py"},
		{[]string{"d/"}, "/srv", "srv/sub/y.py srv/x srv/z.py"},
		{[]string{"."}, "/n", "n/a n/b n/d/sub/y.py n/d/x n/d/z.py"},
		{[]string{"d/*.py"}, "/n/", "n/z.py"},
		{[]string{"**/*.py"}, "/n/", "n/y.py n/z.py"},
		{[]string{"[ab]"}, "/n", "n/a n/b"},
		{[]string{"d/?"}, "/n", "n"},
		{[]string{"d/*"}, "/n", "n/x n/y.py n/z.py"},
		{[]string{"a"}, "/bin/tool", "usr/bin/tool"},
		{[]string{"a"}, "/var/run/deep/pid", "run/deep/pid"},
		{[]string{"a"}, "rel", "home/rel"},
		{[]string{"a"}, "/dangling/", "srv/later/a"},
		{[]string{"a"}, "/plain", "plain"},
		{[]string{"a"}, "/$WHERE/x", "some/x"},
		{[]string{"nope"}, "/n", "no file of the build matches"},
		{[]string{"a"}, "/plain/x", "cannot be used"},
		{[]string{"d"}, "/plain", "it is a file"},
		{[]string{"a"}, "/round/x", "cannot be used"},
		{[]string{"../a"}, "/n", "leads out"},
		{[]string{"a", "?"}, "/n/", "n/a n/b n/sub/y.py n/x n/z.py"},
		{[]string{"d", "d/x"}, "/n/", "two sources mean it"},
	} {
		step := Step{Kind: StepCopy, Label: "step 1", Copy: &CopyStep{Files: files, Sources: c.from, Dest: c.to, Owner: "5:root", Mode: "0640"}}
		tpl, err := s.Import(t.Context(), ImportRequest{Name: "out", Source: Source{Kind: FromTemplate, Ref: "base"}, Cwd: "/home", Env: []string{"WHERE=some"}, Steps: []Step{step}})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || errdefs.From(err).Class != errdefs.User {
				t.Errorf("%v to %s: %v, want %s", c.from, c.to, err, c.want)
			}
			continue
		}
		if got := added(t, s, tpl); got != c.want {
			t.Errorf("%v to %s gives %s, want %s", c.from, c.to, got, c.want)
		}
	}
}

// added lists the files of a template's topmost layer, whose owners and modes it checks, and those of
// directories that were there before.
func added(t *testing.T, s *Local, tpl *Template) string {
	t.Helper()
	in, err := s.Layers().Get(tpl.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	view, err := layer.OpenView([]layer.Info{in})
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	root, err := in.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var names []string
	for _, name := range walkNames(t, root) {
		a, err := view.Lstat(name)
		switch {
		case err != nil:
			t.Fatal(err)
		case !a.IsDir():
			names = append(names, name)
			if a.UID != 5 || a.GID != 0 || a.Mode&0o7777 != 0o640 {
				t.Errorf("%s is %d:%d %o", name, a.UID, a.GID, a.Mode)
			}
		case name == "srv" && (a.UID != 7 || a.GID != 8 || a.Mode&0o7777 != 0o711):
			t.Errorf("an existing directory became %+v", a)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Steps that change files are done once, until something before them changes.
func TestStepsAreKept(t *testing.T) {
	needRoot(t)
	b := &stepBuilder{}
	s := open(t, t.TempDir(), Options{Builder: b})
	if _, err := s.Import(t.Context(), ImportRequest{Name: "base", Source: tarFile(t, rootfs(t))}); err != nil {
		t.Fatal(err)
	}
	run := func(script string) Step { return Step{Kind: StepRun, Script: script, Label: script} }
	build := func(fresh bool, steps ...Step) (*Template, int) {
		t.Helper()
		before := len(b.runs)
		tpl, err := s.Import(t.Context(), ImportRequest{Name: "out", Source: Source{Kind: FromTemplate, Ref: "base"}, Steps: steps, Fresh: fresh})
		if err != nil {
			t.Fatal(err)
		}
		return tpl, len(b.runs) - before
	}
	env := func(kv ...string) Step { return Step{Kind: StepEnv, Env: kv, Label: "env"} }
	steps := []Step{env("A=1", "B=x$A", `C=\$A`), run("one"), {Kind: StepWorkdir, Dir: "work/$A", Label: "cd"}, {Kind: StepUser, User: "user", Label: "user"}, run("two")}
	tpl, n := build(false, steps...)
	if n != 2 || tpl.Cwd != "/work/1" || tpl.User != "user" || tpl.Spec.User != "user" || !slices.Equal(tpl.Env, []string{"A=1", "B=x", "C=$A"}) {
		t.Errorf("%d runs, %+v", n, tpl)
	}
	last := b.runs[len(b.runs)-1]
	if last.User != "user" || last.Cwd != "/work/1" || !slices.Contains(last.Env, "A=1") {
		t.Errorf("%+v", last)
	}
	for want, try := range map[int]func() (*Template, int){
		0: func() (*Template, int) { return build(false, steps...) },
		1: func() (*Template, int) { return build(false, append(slices.Clone(steps), run("three"))...) },
		2: func() (*Template, int) { return build(true, steps...) },
		3: func() (*Template, int) {
			return build(false, append([]Step{env("A=2"), run("zero")}, steps[1:]...)...)
		},
	} {
		if _, n := try(); n != want {
			t.Errorf("%d commands ran, want %d", n, want)
		}
	}
	forced := slices.Clone(steps)
	forced[1].Force = true
	if _, n := build(false, forced...); n == 0 { // those after it run again if it gives something else
		t.Errorf("a forced step: %d commands ran", n)
	}
	if _, err := s.Import(context.Background(), ImportRequest{Name: "x", Source: Source{Kind: FromTemplate, Ref: "nope"}}); err == nil {
		t.Error("an unknown base")
	}
}

// The smallest expression that a pattern can become matches names, never panics, and "*" stays in its directory.
func FuzzGlob(f *testing.F) {
	for _, p := range []string{"a*", "**/x", "[a-", `\`, "[]]", "[^a]?"} {
		f.Add(p, "a/b")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p := copyPlan{}
		if p.source(pattern) != nil {
			return
		}
		s := p.sources[0]
		if root, ok := s.root(name); ok && !strings.HasPrefix(name, root) {
			t.Fatalf("%q of %q", root, name)
		}
		if s.pattern == "*" && s.re.MatchString("a/b") {
			t.Fatal("* crosses a slash")
		}
	})
}

func walkNames(t *testing.T, root *os.File) (names []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/self/fd/%d/", root.Fd())
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if name := strings.TrimPrefix(p, dir); name != "" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
