package schema

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/docs"
	"github.com/dsec-platform/dsec/internal/spec"
)

func TestCommittedSchemaIsFresh(t *testing.T) {
	t.Chdir("../../..")
	want, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("docs/spec.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || !bytes.Equal(docs.SpecSchema, want) {
		t.Error("docs/spec.schema.json is stale: run `go generate ./internal/spec/schema`")
	}
}

// Every field that the parser knows is in the schema, and none more.
func TestSchemaHasEveryField(t *testing.T) {
	var doc struct {
		Defs map[string]struct {
			Properties map[string]json.RawMessage
		} `json:"$defs"`
	}
	if err := json.Unmarshal(docs.SpecSchema, &doc); err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[spec.Sandbox](), reflect.TypeFor[spec.FS](), reflect.TypeFor[spec.Network](), reflect.TypeFor[spec.Scheduler](), reflect.TypeFor[spec.Pool](), reflect.TypeFor[spec.Session]()} {
		props := doc.Defs[typ.Name()].Properties
		if len(props) != typ.NumField() {
			t.Errorf("%s has %d properties, want %d", typ.Name(), len(props), typ.NumField())
		}
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
			if _, ok := props[name]; !ok {
				t.Errorf("%s lacks %s", typ.Name(), name)
			}
		}
	}
}
