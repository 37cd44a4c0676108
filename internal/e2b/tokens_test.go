package e2b

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTokens(t *testing.T) {
	dir := t.TempDir()
	a, err := OpenTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range []string{a.Envd("x"), a.Envd("y"), a.Traffic("x"), a.Traffic("y")} {
		if len(s) < 64 || seen[s] {
			t.Errorf("token %q is short or was given before", s)
		}
		seen[s] = true
	}
	again, err := OpenTokens(dir)
	if err != nil || again.Envd("x") != a.Envd("x") {
		t.Errorf("a restart changed the tokens: %v", err)
	}
	other, err := OpenTokens(t.TempDir())
	if err != nil || other.Envd("x") == a.Envd("x") {
		t.Errorf("two servers give the same tokens: %v", err)
	}
	path := filepath.Join(dir, "e2b-token-key")
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", i, err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTokens(dir); err == nil {
		t.Error("a damaged key was taken")
	}
}

// What a create is known by tells nothing of its variables to who does not have the key.
func TestDigestsAreKeyed(t *testing.T) {
	o, err := parseObject("", []byte(`{"templateID":"t","envVars":{"TOKEN":"hunter2"}}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := OpenTokens(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenTokens(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first := a.digestOf("/sandboxes", o)
	if again := a.digestOf("/sandboxes", o); again != first {
		t.Errorf("not the same again: %q and %q", first, again)
	}
	if first == b.digestOf("/sandboxes", o) {
		t.Error("the key does not matter")
	}
}
