package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/dsec-platform/dsec/docs"
	"github.com/dsec-platform/dsec/internal/spec"
)

func newSpec(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spec",
		Short: "Check and explain spec files",
		Example: `  dsec spec lint box.yaml
  dsec spec show box.yaml
  dsec spec schema > spec.schema.json`,
		RunE: group,
	}
	cmd.AddCommand(newSpecLint(e), newSpecShow(e), newSpecSchema(e))
	return cmd
}

// readSpec reads a spec file, or standard input for -.
func (e *Env) readSpec(name string) (*spec.Document, error) {
	data, err := e.readInput(name)
	if err != nil {
		return nil, err
	}
	return spec.Parse(name, data)
}

func (e *Env) readInput(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(e.In, spec.MaxDocument+1))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, spec.MaxDocument+1))
}

// lintResult is what spec lint says of one file.
type lintResult struct {
	File     string         `json:"file"`
	Clean    bool           `json:"clean"`
	Problems spec.Problems  `json:"problems"`
	Findings []spec.Finding `json:"findings"`
}

func newSpecLint(e *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE...",
		Short: "Refuse mistakes and what is dangerous, and explain each",
		Long: `Check spec files: unknown and impossible values, mounts that lead out of the box
(docker.sock, /, /proc, /etc, …), writable paths shared between boxes, root
without need, memory overcommit. Each finding has its line, its field, the reason
and the remedy. The exit code is 1 unless every file is free of errors and
warnings; notes do not count.`,
		Example: "  dsec spec lint box.yaml\n  dsec spec lint -o json *.yaml\n  cat box.yaml | dsec spec lint -",
		Args:    nArgs(1, -1, "FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			opts := spec.LintOptions{DataDirs: []string{e.absDataDir()}}
			if e.hooks.NeverGranted != nil {
				opts.NeverGranted = e.hooks.NeverGranted()
			}
			return e.lint(args, opts)
		},
	}
}

func (e *Env) lint(files []string, opts spec.LintOptions) error {
	clean := true
	results := make([]lintResult, 0, len(files))
	for _, name := range files {
		data, err := e.readInput(name)
		if err != nil {
			return err
		}
		r := lintResult{File: name, Problems: spec.Problems{}, Findings: []spec.Finding{}}
		doc, err := spec.Parse(name, data)
		if ps, ok := spec.AsProblems(err); ok {
			r.Problems = ps
		}
		if doc != nil {
			r.Findings = append(r.Findings, spec.Lint(doc, opts)...)
		}
		r.Clean = len(r.Problems) == 0 && spec.Clean(r.Findings)
		clean = clean && r.Clean
		results = append(results, r)
		if !e.JSON() {
			e.showLint(r)
		}
	}
	if e.JSON() {
		if err := printJSON(e.Out, results); err != nil {
			return err
		}
	}
	if !clean {
		return exitCode(exitFailed)
	}
	return nil
}

func (e *Env) showLint(r lintResult) {
	for _, p := range r.Problems {
		writeAll(e.Out, fmt.Sprintf("%s: error: %s\n    remedy: %s\n", p.Position(), about(p.Field, p.Message), p.Remedy))
	}
	for _, f := range r.Findings {
		pos := spec.Problem{File: f.File, Line: f.Line, Column: f.Column}.Position()
		writeAll(e.Out, fmt.Sprintf("%s: %s: %s: %s [%s]\n    remedy: %s\n", pos, f.Severity, f.Field, f.Message, f.Rule, f.Remedy))
	}
	if r.Clean && !e.quiet {
		writeAll(e.Out, r.File+": clean\n")
	}
}

// about puts a field before a message; a mistake of the whole file has none.
func about(field, message string) string {
	if field == "" {
		return message
	}
	return field + ": " + message
}

func newSpecShow(e *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "show [FILE]",
		Short:   "Show a spec with every default filled in",
		Long:    "Show a file's sandbox_spec and scheduler_config with every default filled in; without a file, the defaults. A template's own defaults are not known here.",
		Example: "  dsec spec show\n  dsec spec show box.yaml -o json",
		Args:    nArgs(0, 1, "at most one FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			doc := &spec.Document{Sandbox: &spec.Sandbox{}, Scheduler: &spec.Scheduler{}}
			if len(args) == 1 {
				var err error
				if doc, err = e.readSpec(args[0]); err != nil {
					return err
				}
			}
			out := map[string]any{}
			if doc.Sandbox != nil {
				out["sandbox_spec"] = spec.Resolve(spec.Sandbox{}, *doc.Sandbox)
			}
			if doc.Scheduler != nil {
				out["scheduler_config"] = spec.ResolveScheduler(*doc.Scheduler)
			}
			if e.JSON() {
				return printJSON(e.Out, out)
			}
			b, err := yaml.Marshal(out)
			writeAll(e.Out, string(b))
			return err
		},
	}
}

func newSpecSchema(e *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of spec files",
		Example: "  dsec spec schema > spec.schema.json",
		Args:    nArgs(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			_, err := e.Out.Write(docs.SpecSchema)
			return err
		},
	}
}
