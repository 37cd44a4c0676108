// Package keyed makes digests that tell nothing of what they are over to who does not have their key: what is
// asked for may hold passwords, and a plain digest of one is a way to guess it.
package keyed

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/secretfile"
)

const size = 32

// Name is the file of a data directory's key for digests of requests and of the steps of builds.
const Name = "digest-key"

// Key makes digests. It is safe for concurrent use.
type Key struct{ secret []byte }

// New gives a key that nobody else has and that is kept nowhere.
func New() *Key {
	k := &Key{make([]byte, size)}
	_, _ = rand.Read(k.secret) // it never fails
	return k
}

// Open reads a key, or makes one that root alone can read. Processes that make it at the same time get the same.
func Open(path string) (*Key, error) {
	secret, err := secretfile.Read(path, func() ([]byte, error) { return New().secret, nil })
	switch {
	case err != nil:
		return nil, err
	case len(secret) != size:
		return nil, errdefs.Userf(errdefs.InvalidArgument, "file "+path, "restore it, or remove it: what was made with it is not known again then", "has %d bytes instead of %d", len(secret), size)
	}
	return &Key{secret}, nil
}

// Sum gives the digest of parts, which may hold anything, in hexadecimal digits.
func (k *Key) Sum(parts ...[]byte) string {
	m := hmac.New(sha256.New, k.secret)
	for _, p := range parts {
		var n [8]byte
		for i, l := 0, len(p); i < len(n); i++ {
			n[i] = byte(l >> (8 * i))
		}
		m.Write(n[:])
		m.Write(p)
	}
	return hex.EncodeToString(m.Sum(nil))
}
