package tmpl

import "testing"

func TestEnvWord(t *testing.T) {
	for value, want := range map[string]string{
		"plain": "plain", "it's $HOME": `it\'s $HOME`, `"a b"`: `"a b"`, `'a b'`: `'a b'`, `"a" and "b"`: `\"a\" and \"b\"`,
		`\$5`: `\$5`, `ends with \`: `ends with \\`, `\"`: `\"`, "": "", `"`: `\"`,
	} {
		if got := envWord(value); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}
