package spec

import (
	"os"
	"path/filepath"
	"testing"
)

// The examples that the documentation points at are clean, and would start.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/specs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := Parse(f, data)
		if err != nil {
			t.Fatal(err)
		}
		if fs := Lint(doc, LintOptions{}); !Clean(fs) {
			t.Errorf("%s: %v", f, fs)
		}
		if doc.Sandbox != nil {
			s := Resolve(Sandbox{}, *doc.Sandbox)
			if _, err := Check(&s); err != nil {
				t.Error(err)
			}
		}
		if doc.Scheduler != nil {
			s := ResolveScheduler(*doc.Scheduler)
			if _, err := CheckScheduler(&s); err != nil {
				t.Error(err)
			}
		}
	}
}
