package setup

import (
	"reflect"
	"testing"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// Every setting goes into the next life; of those that do not, the test says so.
func TestSettingsOutliveTheGuest(t *testing.T) {
	s := Settings{}
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case name == "mounts": // for a claim, which a box has before it can rest
		case f.Kind() == reflect.String:
			f.SetString(name)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.CanInt():
			f.SetInt(int64(i + 7))
		case f.CanUint():
			f.SetUint(uint64(i + 7))
		case f.Type() == reflect.TypeFor[[]string]():
			f.Set(reflect.ValueOf([]string{name, "", "b"}))
		case f.Type() == reflect.TypeFor[[]int]():
			f.Set(reflect.ValueOf([]int{0, i}))
		case f.Type() == reflect.TypeFor[[]byte]():
			f.SetBytes([]byte(name))
		default:
			t.Fatalf("a setting of a new kind: %s", name)
		}
	}
	var got Settings
	if err := guestproto.Unmarshal(guestproto.Marshal(nil, &s), &got); err != nil || !reflect.DeepEqual(s, got) {
		t.Errorf("%v: got %+v, want %+v", err, got, s)
	}
	if fds := s.Descriptors(); len(fds) != 5 {
		t.Errorf("descriptors %v", fds)
	}
}
