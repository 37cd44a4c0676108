package template

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestHostSources(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/sources.list.d", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sources.list": "# none\ndeb http://mirror.test/debian bookworm main contrib # yes\ndeb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian bookworm-updates main\n" +
			"deb http://user:pw@secret.test/debian bookworm main\ndeb file:///srv/debian bookworm main\ndeb-src http://mirror.test/debian bookworm main\ndeb http://mirror.test/debian trixie main\n",
		"sources.list.d/a.sources": "Types: deb\n# why\nURIs: http://one.test/d http://two.test/d\nSuites: bookworm trixie\nComponents: main\nSigned-By: /usr/share/keyrings/k.gpg\n\n" +
			"Types: deb-src\nURIs: http://src.test/\nSuites: bookworm\n\nTypes: deb\nEnabled: no\nURIs: http://off.test/\nSuites: bookworm\n",
		"sources.list.d/old.list.disabled": "deb http://disabled.test/debian bookworm main\n",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"deb http://mirror.test/debian bookworm main contrib",
		"deb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian bookworm-updates main",
		"deb [signed-by=/usr/share/keyrings/k.gpg] http://one.test/d bookworm main",
		"deb [signed-by=/usr/share/keyrings/k.gpg] http://two.test/d bookworm main",
	}
	if got := hostSources(dir, "bookworm"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := hostSources(dir, "sid"); got != nil {
		t.Errorf("sid: %q", got)
	}
}

// A real build downloads some 40 MB: it runs when it is asked for.
func TestDebianBuild(t *testing.T) {
	if os.Getenv("DSEC_TEST_DOWNLOADS") == "" || testing.Short() {
		t.Skip("downloads packages: set DSEC_TEST_DOWNLOADS=1")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and mmdebstrap")
	}
	s := open(t, t.TempDir(), Options{})
	var log []string
	req := ImportRequest{Name: "deb", Source: Source{Kind: Debian, Ref: "bookworm", Packages: []string{"python3"}},
		Progress: func(p Progress) { log = append(log, p.Stage+": "+p.Message) }}
	tpl, err := s.Import(t.Context(), req)
	if err != nil {
		t.Fatal(err, strings.Join(log, "\n"))
	}
	t.Logf("%s: %d MiB, %d lines of progress", tpl.Ref(), tpl.Size>>20, len(log))
	for _, l := range tpl.Layers {
		t.Logf("%+v", l)
	}
	again, err := s.Import(t.Context(), req)
	if err != nil || again.Version != tpl.Version {
		t.Errorf("again: %v, %v", again, err)
	}
	if err := s.Verify(t.Context(), "deb"); err != nil {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), "deb"); err != nil {
		t.Error(err)
	}
	if left, err := s.Layers().List(); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
