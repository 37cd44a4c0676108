package e2b

import (
	"path/filepath"

	"github.com/dsec-platform/dsec/internal/keyed"
)

// Tokens are the access tokens of sandboxes. They follow from the sandbox's id and a key of this
// server, so that none is stored and all survive a restart. Compare them in constant time.
type Tokens struct{ key *keyed.Key }

// OpenTokens reads the key of dir, or makes one, readable by root alone.
func OpenTokens(dir string) (*Tokens, error) {
	key, err := keyed.Open(filepath.Join(dir, "e2b-token-key"))
	return &Tokens{key}, err
}

// Envd is the token for the sandbox's processes and files. It names the sandbox: see addressByToken.
func (t *Tokens) Envd(sandbox string) string { return sandbox + "." + t.token("envd", sandbox) }

// Traffic is the token for the ports that the sandbox's own servers listen on.
func (t *Tokens) Traffic(sandbox string) string { return t.token("traffic", sandbox) }

func (t *Tokens) token(use, sandbox string) string {
	return t.key.Sum([]byte(use), []byte(sandbox))
}
