// Command gen writes the JSON Schema of a spec file to the named path. It is
// run by go generate in internal/spec/schema.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dsec-platform/dsec/internal/spec/schema"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the path to write to")
	}
	out, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	if err := os.Chdir(filepath.Dir(filepath.Dir(out))); err != nil {
		return err
	}
	data, err := schema.Generate()
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}
