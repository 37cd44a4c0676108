package rollout

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
)

// maxLine bounds one task.
const maxLine = 64 << 20

// Read parses tasks, one JSON object a line, strictly: an error is a user error
// that names file, line, task and field.
func Read(file string, r io.Reader) ([]Task, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxLine)
	var tasks []Task
	seen := map[string]int{}
	for line := 1; sc.Scan(); line++ {
		text := bytes.TrimSpace(sc.Bytes())
		if len(text) == 0 {
			continue
		}
		t, err := readTask(text)
		object := fmt.Sprintf("%s:%d", file, line)
		if t.ID != "" {
			object += ": task " + t.ID
		}
		if err == nil && seen[t.ID] > 0 {
			err = fault{"id", fmt.Sprintf("is also on line %d", seen[t.ID]), "give each task its own id"}
		}
		if f, ok := errors.AsType[fault](err); ok {
			return nil, errdefs.Userf(errdefs.InvalidArgument, object+": "+f.field, f.remedy, "%s", f.message)
		}
		if err != nil {
			return nil, errdefs.Userf(errdefs.InvalidArgument, object, "docs/rollout.md describes the format", "%w", err)
		}
		t.line = line
		seen[t.ID] = line
		tasks = append(tasks, t)
	}
	if err := sc.Err(); err != nil {
		return nil, errdefs.Userf(errdefs.InvalidArgument, file, "keep each task on one line of at most 64 MiB", "cannot be read: %w", err)
	}
	if len(tasks) == 0 {
		return nil, errdefs.Userf(errdefs.InvalidArgument, file, "write one JSON object a line", "holds no task")
	}
	return tasks, nil
}

// fault is a mistake in one field of a task.
type fault struct{ field, message, remedy string }

func (f fault) Error() string { return f.field + ": " + f.message }

func readTask(text []byte) (Task, error) {
	var t Task
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return t, decodeFault(err)
	}
	if d.More() {
		return t, fault{"line", "holds more than one value", "write one JSON object a line"}
	}
	return t, t.check()
}

var known = []string{"id", "template", "spec", "env", "labels", "files", "cwd", "think_ms", "timeout_ms", "steps", "write", "exec", "shell", "check",
	"reward", "path", "content", "mode", "argv", "script", "session", "user", "stdin", "cmd", "expect", "exit", "stdout", "stdout_contains", "stderr_contains",
	"dist", "value", "min", "max", "mean", "median", "sigma"}

// decodeFault names the field of an error of package json.
func decodeFault(err error) error {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && te.Field != "" {
		return fault{te.Field, "is a " + te.Value, "give a " + te.Type.String()}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		remedy := "docs/rollout.md lists the fields"
		if near := spec.Nearest(name, known); near != "" {
			remedy = "did you mean " + near + "?"
		}
		return fault{name, "is not a known field", remedy}
	}
	return err
}

func (t *Task) check() error {
	if t.ID == "" || len(t.ID) > 200 {
		return fault{"id", "is missing or longer than 200 bytes", "give each task an id"}
	}
	if t.Cwd == "" {
		t.Cwd = "/workspace"
	}
	if !path.IsAbs(t.Cwd) {
		return fault{"cwd", fmt.Sprintf("%q is not absolute", t.Cwd), "write " + path.Join("/", t.Cwd)}
	}
	for name := range t.Files {
		if c := path.Clean(name); name == "" || path.IsAbs(c) || c == ".." || strings.HasPrefix(c, "../") {
			return fault{"files", fmt.Sprintf("%q is not a path below cwd", name), "write it relative to cwd, without .."}
		}
	}
	if t.TimeoutMs < 0 {
		return fault{"timeout_ms", "is negative", "give milliseconds, or leave it out"}
	}
	if err := t.Think.check("think_ms"); err != nil {
		return err
	}
	if len(t.Steps) == 0 {
		return fault{"steps", "is empty", "give at least one step"}
	}
	for i := range t.Steps {
		if err := t.Steps[i].check(fmt.Sprintf("steps[%d]", i)); err != nil {
			return err
		}
	}
	return t.readSpec()
}

// readSpec checks the overrides as any other spec.
func (t *Task) readSpec() error {
	if len(t.Spec) == 0 {
		return nil
	}
	doc, err := spec.Parse("", t.Spec)
	if ps, ok := spec.AsProblems(err); ok {
		return fault{join("spec", ps[0].Field), ps[0].Message, ps[0].Remedy}
	}
	if err != nil {
		return err
	}
	if doc.Sandbox == nil || doc.Scheduler != nil {
		return fault{"spec", "is not a sandbox_spec", "give its fields, such as {\"mem_limit\": \"256Mi\"}"}
	}
	t.specYAML = string(t.Spec) // JSON is YAML
	return nil
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + "." + b
}

func (s *Step) check(at string) error {
	n := 0
	for _, given := range []bool{s.Write != nil, s.Exec != nil, s.Shell != nil, s.Check != nil} {
		if given {
			n++
		}
	}
	if n != 1 {
		return fault{at, fmt.Sprintf("has %d actions", n), "give exactly one of write, exec, shell and check"}
	}
	if s.Reward != nil && s.Check == nil {
		return fault{at + ".reward", "belongs to a check", "move it to a step with a check"}
	}
	if err := s.Think.check(at + ".think_ms"); err != nil {
		return err
	}
	switch {
	case s.Write != nil && s.Write.Path == "":
		return fault{at + ".write.path", "is missing", "name the file"}
	case s.Exec != nil && len(s.Exec.Argv) == 0:
		return fault{at + ".exec.argv", "is empty", "give the program and its arguments"}
	case s.Shell != nil && s.Shell.Script == "":
		return fault{at + ".shell.script", "is empty", "give the shell's text"}
	case s.Check != nil && len(s.Check.Cmd.Argv) == 0 && s.Check.Cmd.Script == "":
		return fault{at + ".check.cmd", "is missing", "give a list of words or a shell's text"}
	}
	if h := s.how(); h != nil && h.TimeoutMs < 0 {
		return fault{at + ".timeout_ms", "is negative", "give milliseconds, or leave it out"}
	}
	return nil
}

func (s *Step) how() *How {
	switch {
	case s.Exec != nil:
		return &s.Exec.How
	case s.Shell != nil:
		return &s.Shell.How
	case s.Check != nil:
		return &s.Check.How
	}
	return nil
}

// Kind names a step's action.
func (s *Step) Kind() string {
	switch {
	case s.Write != nil:
		return "write"
	case s.Exec != nil:
		return "exec"
	case s.Shell != nil:
		return "shell"
	}
	return "check"
}
