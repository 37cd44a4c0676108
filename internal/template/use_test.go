package template

import (
	"reflect"
	"testing"
)

// A template in use is told from memory, and told the same.
func TestUsedTemplateIsTheSame(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	_, base, err := s.ensureBase(t.Context(), fakeHost(t))
	if err != nil {
		t.Fatal(err)
	}
	get := func(ref string) *Template {
		t.Helper()
		got, err := s.Get(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	refs := []string{"", BaseName, base.Ref(), base.Ref()[:len(base.Ref())-4]}
	var before []*Template
	for _, ref := range refs {
		before = append(before, get(ref))
	}
	for uses := 1; uses <= 2; uses++ {
		_, _, release, err := s.Resolve(t.Context(), base.Ref())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		for i, ref := range refs {
			got := get(ref)
			if got.InUse != uses {
				t.Errorf("%q: %d uses, want %d", ref, got.InUse, uses)
			}
			got.InUse = before[i].InUse
			if !reflect.DeepEqual(got, before[i]) {
				t.Errorf("%q: %+v, before %+v", ref, got, before[i])
			}
		}
	}
}
