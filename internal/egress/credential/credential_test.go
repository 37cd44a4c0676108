package credential

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAuthorityLastsAndSigns(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Certificate("p1", "api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	a, err := again.Authority("p1")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM())
	if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "api.example.com"}); err != nil {
		t.Error(err)
	}
	other, err := again.Authority("p2")
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(other.PEM())
	if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: pool}); err == nil {
		t.Error("another project's authority vouches for it")
	}
	st, err := os.Stat(filepath.Join(dir, "p1", "ca.pem"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	for _, name := range []string{"", "..", "a/b", ".x"} {
		if _, err := s.Authority(name); err == nil {
			t.Errorf("project %q has an authority", name)
		}
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	file := filepath.Join(dir, "credentials.yaml")
	write := func(path, text string, mode os.FileMode) {
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(token, "from-file\n", 0o600)
	t.Setenv("DSEC_TEST_TOKEN", "from-env")
	write(file, "projects:\n  p:\n    a: {scheme: Bearer, value: v1}\n    b: {header: X-Key, file: "+token+"}\n    c: {header: X-Key, env: DSEC_TEST_TOKEN}\n", 0o600)
	s, err := Open(dir, file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{"a": {"Authorization", "Bearer v1"}, "b": {"X-Key", "from-file"}, "c": {"X-Key", "from-env"}} {
		c, ok := s.Credential("p", name)
		if !ok || c.Header != want[0] || c.Value != want[1] {
			t.Errorf("%s is not what the file says", name)
		}
		if text := fmt.Sprintf("%v %+v %#v %s", c, c, c, c); strings.Contains(text, want[1]) {
			t.Errorf("%s prints its secret", name)
		}
	}
	if _, ok := s.Credential("other", "a"); ok {
		t.Error("another project has it")
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others read: %v", err)
	}
	for _, text := range []string{"a: {value: x, env: Y}", "a: {}", "a: {header: \"x y\", value: v}", "a: {header: Host, value: v}", "a: {value: \"x\\ny\"}", "a: {vlaue: x}"} {
		write(file, "projects:\n  p:\n    "+text+"\n", 0o600)
		_ = os.Chmod(file, 0o600)
		if _, err := Open(dir, file); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}
