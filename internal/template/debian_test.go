package template

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

// runIn runs a command as the user over a template's layers, mounted as a box
// has them but for the ids.
func runIn(t *testing.T, s *Local, tpl *Template, argv ...string) string {
	t.Helper()
	fsfd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fsfd)
	for _, l := range tpl.Layers {
		in, err := s.Layers().Get(l.Digest)
		if err != nil {
			t.Fatal(err)
		}
		f, err := in.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.FsconfigSetFd(fsfd, "lowerdir+", int(f.Fd())); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Err = nil // the program is in the root, not here
	cmd.Path, cmd.Dir = argv[0], "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: fmt.Sprintf("/proc/self/fd/%d", root), Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", out, err)
	}
	return string(out)
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
	if out := runIn(t, s, tpl, "/usr/bin/python3", "-c", "import ssl, json, os, pwd; print(os.getuid(), pwd.getpwuid(1000).pw_dir)"); out != "1000 /home/user\n" {
		t.Errorf("python says %q", out)
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
