package rollout

import (
	"encoding/json"
	"errors"
)

// Task is one episode.
type Task struct {
	ID       string            `json:"id"`
	Template string            `json:"template,omitempty"`
	Spec     json.RawMessage   `json:"spec,omitempty"` // sandbox_spec overrides
	Env      map[string]string `json:"env,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Files are in the box before it runs; names are relative to Cwd.
	Files map[string]string `json:"files,omitempty"`
	Cwd   string            `json:"cwd,omitempty"` // default /workspace
	// Think is the pause before each step that has none of its own.
	Think *Think `json:"think_ms,omitempty"`
	// TimeoutMs bounds the whole episode, thinking included; 0: none.
	TimeoutMs int64  `json:"timeout_ms,omitempty"`
	Steps     []Step `json:"steps"`

	line     int
	specYAML string
}

// Step is one thing that the agent does: exactly one of the four.
type Step struct {
	Write *Write `json:"write,omitempty"`
	Exec  *Exec  `json:"exec,omitempty"`
	Shell *Shell `json:"shell,omitempty"`
	Check *Check `json:"check,omitempty"`
	// Reward is given when the check is met.
	Reward *float64 `json:"reward,omitempty"`
	Think  *Think   `json:"think_ms,omitempty"`
}

// Write puts a file into the box.
type Write struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Mode    uint32 `json:"mode,omitempty"`
}

// How says how a command runs.
type How struct {
	Cwd       string            `json:"cwd,omitempty"`
	User      string            `json:"user,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Stdin     string            `json:"stdin,omitempty"`
	TimeoutMs int64             `json:"timeout_ms,omitempty"`
}

// Exec runs a program. Its exit code decides nothing.
type Exec struct {
	Argv []string `json:"argv"`
	How
}

// Shell runs a text in a shell; with Session its state is kept from step to step.
type Shell struct {
	Script  string `json:"script"`
	Session string `json:"session,omitempty"`
	How
}

// Check runs a command and compares how it ended.
type Check struct {
	Cmd    Cmd    `json:"cmd"`
	Expect Expect `json:"expect,omitzero"`
	How
}

// Cmd is a program with arguments, written as a list, or a shell's text.
type Cmd struct {
	Argv   []string
	Script string
}

// UnmarshalJSON reads both forms.
func (c *Cmd) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, &c.Argv)
	}
	if err := json.Unmarshal(b, &c.Script); err != nil {
		return errors.New("cmd is a list of words or a shell's text")
	}
	return nil
}

// MarshalJSON writes the form that was read.
func (c Cmd) MarshalJSON() ([]byte, error) {
	if c.Argv != nil {
		return json.Marshal(c.Argv)
	}
	return json.Marshal(c.Script)
}

// Expect says how a checked command must end. Nothing said: with exit code 0.
type Expect struct {
	Exit           *Exit   `json:"exit,omitempty"`
	Stdout         *string `json:"stdout,omitempty"` // all of it, but for white space at its end
	StdoutContains string  `json:"stdout_contains,omitempty"`
	StderrContains string  `json:"stderr_contains,omitempty"`
}

// Exit is an exit code, or "nonzero" for any failure (signals too).
type Exit struct {
	Code    int
	NonZero bool
}

// UnmarshalJSON reads both forms.
func (x *Exit) UnmarshalJSON(b []byte) error {
	if string(b) == `"nonzero"` {
		x.NonZero = true
		return nil
	}
	if err := json.Unmarshal(b, &x.Code); err != nil || x.Code < 0 || x.Code > 255 {
		return errors.New(`exit is a number from 0 to 255, or "nonzero"`)
	}
	return nil
}

// MarshalJSON writes the form that was read.
func (x Exit) MarshalJSON() ([]byte, error) {
	if x.NonZero {
		return []byte(`"nonzero"`), nil
	}
	return json.Marshal(x.Code)
}
