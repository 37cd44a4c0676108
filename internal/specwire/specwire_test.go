package specwire_test

import (
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/specwire"
)

// fill gives every field of a struct a value of its own.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString(fmt.Sprint("v", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		panic(v.Kind().String())
	}
}

// A field that is added to the spec and forgotten on the wire fails here.
func TestSpecSurvivesTheWire(t *testing.T) {
	var s spec.Sandbox
	n := 0
	fill(reflect.ValueOf(&s).Elem(), &n)
	b, err := proto.Marshal(specwire.To(&s))
	if err != nil {
		t.Fatal(err)
	}
	var w dsecv1.Spec
	if err := proto.Unmarshal(b, &w); err != nil {
		t.Fatal(err)
	}
	if got := specwire.From(&w); !reflect.DeepEqual(got, s) {
		t.Errorf("got  %+v\nwant %+v", got, s)
	}
	if got := specwire.From(nil); !reflect.DeepEqual(got, spec.Sandbox{}) {
		t.Errorf("nothing said became %+v", got)
	}
}
