package control_test

import (
	"errors"
	"regexp"
	"testing"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

func TestKeyring(t *testing.T) {
	s := openStore(t)
	k, err := control.NewKeyring(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, secret, err := k.CreateKey(t.Context(), "p", "first key")
	if err != nil || !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(secret) || first.Hint != secret[40:] {
		t.Fatalf("%+v %q %v", first, secret, err)
	}
	other, _, err := k.CreateKey(t.Context(), "q", "")
	if err != nil {
		t.Fatal(err)
	}
	unauthenticated := &errdefs.Error{Reason: errdefs.Unauthenticated}
	check := func(k *control.Keyring, live bool) {
		t.Helper()
		p, err := k.Lookup(t.Context(), secret)
		if live && (err != nil || p != "p") || !live && !errors.Is(err, unauthenticated) {
			t.Fatalf("live %v: %q %v", live, p, err)
		}
		if _, err := k.Lookup(t.Context(), secret+"0"); !errors.Is(err, unauthenticated) {
			t.Fatal(err)
		}
	}
	reopen := func() *control.Keyring {
		t.Helper()
		k, err := control.NewKeyring(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	check(k, true)
	check(reopen(), true)
	if err := k.RevokeKey(t.Context(), "nobody"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.RevokeKey(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		check(k, false)
	}
	check(reopen(), false)
	for _, k := range []*control.Keyring{k, reopen()} {
		all, err := k.ListKeys(t.Context(), "")
		if err != nil || len(all) != 2 || all[0].ID != first.ID || all[0].Revoked.IsZero() || all[0].Name != "first key" || all[1].ID != other.ID {
			t.Fatalf("%+v %v", all, err)
		}
		if q, err := k.ListKeys(t.Context(), "q"); err != nil || len(q) != 1 {
			t.Fatalf("%+v %v", q, err)
		}
	}
	for _, c := range [][2]string{{"", "n"}, {"UPPER", "n"}, {"-p", "n"}, {"p", "new\nline"}, {"p", string(make([]byte, 65))}} {
		if _, _, err := k.CreateKey(t.Context(), c[0], c[1]); !errors.Is(err, &errdefs.Error{Reason: errdefs.InvalidArgument}) {
			t.Errorf("%q: %v", c, err)
		}
	}
}
