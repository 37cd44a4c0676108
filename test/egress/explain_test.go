package egress

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// explained tells whether a program of the box is told why it is refused.
func (r *rig) explained(s *dsec.Session, command string) {
	r.t.Helper()
	if out, code := r.sh(s, command); code != 22 || !strings.Contains(out, "the egress policy refuses this request to evil.test") || !strings.Contains(out, "dsec net explain "+s.ID()) {
		r.t.Errorf("%s: exit %d: %s", command, code, out)
	}
}

// Boxes trust their project's authority from its first session on, however they came to be and whatever became of the daemon.
func TestRefusalsAreExplained(t *testing.T) {
	r := start(t)
	r.DNS.Set("evil.test", egresstest.EvilAddr)
	r.DNS.Set("good.test", egresstest.GoodAddr)
	const (
		ask     = "curl -sS --fail-with-body --max-time 20 https://evil.test/"
		network = `{egress_policy: whitelist, allowed_domains: ["good.test"]}`
	)
	first := r.session(network)
	boxes := map[string]*dsec.Session{"the first": first}
	for _, name := range []string{"another", "and another"} {
		boxes[name] = r.session(network)
	}
	later, err := r.c.Create(t.Context(), dsec.CreateOptions{SpecYAML: `network: {egress_policy: deny, phases: {agent: ` + network + `}}`})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.cli("net", "switch", later.ID(), "agent"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	boxes["opened later"] = later
	for name, s := range boxes {
		t.Log(name)
		r.explained(s, ask)
	}
	// By the system's list too, where the root cannot be written.
	r.explained(first, "env -u SSL_CERT_FILE -u CURL_CA_BUNDLE "+ask)

	if err := first.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.explained(first, ask)
	r.Kill()
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, s := range boxes {
		t.Log(name, "after the restart")
		r.explained(s, ask)
	}

	// A box that was made without a network trusts nobody new: names that it is refused do not exist for it.
	plain := r.session(`{egress_policy: deny}`)
	if out, code := r.sh(plain, "env | grep -c CERT; ls /etc/dsec 2>/dev/null"); strings.TrimSpace(out) != "0" {
		t.Errorf("exit %d: %s", code, out)
	}
}

// In a root that can be written the system's list of authorities is the box's own: a package that is installed replaces it, which
// nothing could while something is mounted there. Variables, and a configuration of apt, lead to the list that has the project's authority.
func TestWritableRootKeepsItsList(t *testing.T) {
	tar := os.Getenv("DSEC_TEST_ROOTFS")
	if tar == "" {
		out, err := exec.Command("../../scripts/debian-rootfs.sh").Output()
		if err != nil {
			t.Fatalf("scripts/debian-rootfs.sh: %v", err)
		}
		tar = strings.TrimSpace(string(out))
	}
	f, err := os.Open(tar)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := start(t)
	if _, err := r.c.UploadTemplate(t.Context(), "debian", f); err != nil {
		t.Fatal(err)
	}
	s, err := r.c.Create(t.Context(), dsec.CreateOptions{Template: "debian", SpecYAML: `{fs: {rootfs: writable}, network: {egress_policy: whitelist, allowed_domains: ["good.test"], preflight: "off"}}`})
	if err != nil {
		t.Fatal(err)
	}
	const ask = `python3 -c 'import urllib.request, urllib.error
try: urllib.request.urlopen("https://evil.test/", timeout=20)
except urllib.error.HTTPError as e: print(e, e.read())'`
	told := func(when string) {
		if out, _ := r.sh(s, ask); !strings.Contains(out, "Refused by the egress policy: evil.test") {
			t.Errorf("%s: %s", when, out)
		}
	}
	told("before")
	const list = "/etc/ssl/certs/ca-certificates.crt"
	replace := "mkdir -p /etc/ssl/certs && : > " + list + ".new && mv -f " + list + ".new " + list + " && test ! -s " + list
	if res, err := s.Run(t.Context(), dsec.Command{Argv: []string{"/bin/sh", "-c", replace}, User: "root"}); err != nil || res.GetExitCode() != 0 {
		t.Errorf("the system's list cannot be replaced: %v %s", err, dsec.Output(res.GetStderr()))
	}
	told("after the list was replaced")
	if out, _ := r.sh(s, "apt-config dump Acquire::https::CaInfo"); !strings.Contains(out, "/etc/dsec/authorities.pem") {
		t.Errorf("apt: %s", out)
	}
}
