package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/store"
)

// keyPrefix begins every key, as clients of the E2B interface expect.
const keyPrefix = "e2b_"

// Keyring implements Keys over the store. All live keys are in memory, by hash, so that a lookup
// costs a hash and a map access, whether the key is known or not.
type Keyring struct {
	store *store.Store
	now   func() time.Time
	ids   idSource

	mu   sync.RWMutex
	keys map[[sha256.Size]byte]*Key
}

var _ Keys = (*Keyring)(nil)

// NewKeyring reads the keys. now is time.Now if nil.
func NewKeyring(ctx context.Context, s *store.Store, now func() time.Time) (*Keyring, error) {
	if now == nil {
		now = time.Now
	}
	k := &Keyring{store: s, now: now, keys: map[[sha256.Size]byte]*Key{}}
	stored, err := s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range stored {
		if len(r.Hash) != sha256.Size {
			return nil, errdefs.Infraf(errdefs.ScopePlatform, errdefs.Internal, "API key "+r.ID, "its stored hash has %d bytes", len(r.Hash))
		}
		k.keys[[sha256.Size]byte(r.Hash)] = &Key{ID: r.ID, Project: r.Project, Name: r.Name, Hint: r.Hint, Created: r.Created, Revoked: r.Revoked}
	}
	return k, nil
}

// Lookup implements Keys.
func (k *Keyring) Lookup(_ context.Context, key string) (project string, err error) {
	hash := sha256.Sum256([]byte(key))
	k.mu.RLock()
	defer k.mu.RUnlock()
	if e := k.keys[hash]; e != nil && e.Revoked.IsZero() {
		return e.Project, nil
	}
	return "", errdefs.Userf(errdefs.Unauthenticated, "API key", "send a live key; `dsec key create` makes one", "it is not a live key")
}

var (
	projectName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	keyName     = regexp.MustCompile(`^[[:graph:]]( ?[[:graph:]]){0,63}$`)
)

// CreateKey implements Keys. The project is made if it is new.
func (k *Keyring) CreateKey(ctx context.Context, project, name string) (Key, string, error) {
	if !projectName.MatchString(project) {
		return Key{}, "", errdefs.Userf(errdefs.InvalidArgument, "field project", "use 1 to 63 of a-z, 0-9 and -, not at its ends", "%q cannot name a project", project)
	}
	if name != "" && !keyName.MatchString(name) {
		return Key{}, "", errdefs.Userf(errdefs.InvalidArgument, "field name", "use 1 to 64 printable ASCII characters", "%q cannot name a key", name)
	}
	now := k.now()
	var random [20]byte
	_, _ = rand.Read(random[:]) // it never fails
	secret := keyPrefix + hex.EncodeToString(random[:])
	id, at := k.ids.next(now)
	key := Key{ID: "k" + id[1:], Project: project, Name: name, Hint: secret[len(secret)-4:], Created: at}
	hash := sha256.Sum256([]byte(secret))
	if _, err := k.store.EnsureProject(ctx, store.Project{ID: project, Created: now}); err != nil {
		return Key{}, "", err
	}
	err := k.store.AddKey(ctx, store.APIKey{ID: key.ID, Project: project, Name: name, Hash: hash[:], Hint: key.Hint, Created: at})
	if err != nil {
		return Key{}, "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[hash] = &key
	return key, secret, nil
}

// ListKeys implements Keys.
func (k *Keyring) ListKeys(_ context.Context, project string) ([]Key, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	out := []Key{}
	for _, e := range k.keys {
		if project == "" || e.Project == project {
			out = append(out, *e)
		}
	}
	slices.SortFunc(out, func(a, b Key) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// RevokeKey implements Keys.
func (k *Keyring) RevokeKey(ctx context.Context, id string) error {
	r, err := k.store.RevokeKey(ctx, id, k.now())
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for hash, e := range k.keys {
		if e.ID == id {
			revoked := *e // readers hold copies of the old one
			revoked.Revoked = r.Revoked
			k.keys[hash] = &revoked
		}
	}
	return nil
}
