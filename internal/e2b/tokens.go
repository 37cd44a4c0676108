package e2b

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

const tokenKeySize = 32

// Tokens are the access tokens of sandboxes. They follow from the sandbox's id and a key of this
// server, so that none is stored and all survive a restart. Compare them in constant time.
type Tokens struct{ key []byte }

// OpenTokens reads the key of dir, or makes one, readable by root alone.
func OpenTokens(dir string) (*Tokens, error) {
	path := filepath.Join(dir, "e2b-token-key")
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newTokens(path)
	}
	if err != nil {
		return nil, err
	}
	if len(key) != tokenKeySize {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "file "+path, "restore it, or remove it: all access tokens of sandboxes then change", "has %d bytes instead of %d", len(key), tokenKeySize)
	}
	return &Tokens{key}, nil
}

// newTokens writes the key whole or not at all: half a key would be refused at the next start.
func newTokens(path string) (*Tokens, error) {
	key := make([]byte, tokenKeySize)
	_, _ = rand.Read(key) // it never fails
	temporary := path + ".new"
	if err := os.WriteFile(temporary, key, 0o600); err != nil {
		return nil, err
	}
	return &Tokens{key}, os.Rename(temporary, path)
}

// Envd is the token for the sandbox's processes and files. It names the sandbox: see addressByToken.
func (t *Tokens) Envd(sandbox string) string { return sandbox + "." + t.token("envd", sandbox) }

// Traffic is the token for the ports that the sandbox's own servers listen on.
func (t *Tokens) Traffic(sandbox string) string { return t.token("traffic", sandbox) }

func (t *Tokens) token(use, sandbox string) string {
	m := hmac.New(sha256.New, t.key)
	m.Write([]byte(use + "\x00" + sandbox))
	return hex.EncodeToString(m.Sum(nil))
}
