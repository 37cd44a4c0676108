package egress

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

// A header is added outside of the box: the box's tools trust the opened connection, the server sees the
// secret, and neither the box nor the record ever has it.
func TestCredentialStaysOutside(t *testing.T) {
	const secret = "s3cr3t-that-no-box-sees"
	dir := t.TempDir()
	file := filepath.Join(dir, "credentials.yaml")
	if err := os.WriteFile(file, []byte("projects: {default: {model: {scheme: Bearer, value: "+secret+"}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, "  credentials: "+file)
	r.DNS.Set("api.good.test", egresstest.GoodAddr)
	got := make(chan string, 16)
	r.HTTP(egresstest.GoodAddr+":443", true, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		got <- q.Header.Get("Authorization")
		fmt.Fprintln(w, "welcome")
	}))
	s := r.session(`{egress_policy: whitelist, allowed_domains: ["api.good.test?credential=model"]}`)
	for name, script := range map[string]string{
		"curl":   `curl -sS --max-time 10 https://api.good.test/v1`,
		"python": `python3 -c 'import urllib.request; print(urllib.request.urlopen("https://api.good.test/v1", timeout=10).read())'`,
		// Without the variables: by the template's own list, in whose place the box has one more.
		"curl by the system's list": `env -u SSL_CERT_FILE -u CURL_CA_BUNDLE curl -sS --max-time 10 https://api.good.test/v1`,
		"a box's own header":        `curl -sS --max-time 10 -H 'Authorization: Bearer mine' https://api.good.test/v1`,
	} {
		out, code := r.sh(s, script)
		if code != 0 || !strings.Contains(out, "welcome") {
			t.Errorf("%s: exit %d: %s", name, code, out)
			continue
		}
		if h := <-got; h != "Bearer "+secret {
			t.Errorf("%s: the server saw %q", name, h)
		}
	}
	// The pattern is given in two halves and no argument of a program while arguments are read, so that the search does not find itself.
	hunt := `p="s3cr3t-that-"; p="${p}no-box-sees"; all=$(env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n')
case "$all" in *"$p"*) echo "$all";; esac
grep -rIl "$p" /tmp /workspace /etc /run /var 2>/dev/null; echo hunted`
	if out, _ := r.sh(s, hunt); strings.TrimSpace(out) != "hunted" {
		t.Errorf("the secret is in the box: %s", out)
	}
	out, err := r.cli("net", "log", s.ID(), "-o", "json")
	if err != nil || strings.Contains(out, secret) || !strings.Contains(out, `"model"`) {
		t.Errorf("the record: %v %s", err, out)
	}
	if log := r.Log(); strings.Contains(log, secret) {
		t.Error("the daemon's log has the secret")
	}
	if out, err := r.cli("inspect", s.ID(), "-o", "json"); err != nil || strings.Contains(out, secret) {
		t.Errorf("inspect: %v %s", err, out)
	}
}
