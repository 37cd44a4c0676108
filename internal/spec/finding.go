package spec

import "strings"

// Severity of a Finding.
type Severity string

const (
	// Error: the linter refuses the spec.
	Error Severity = "error"
	// Warning: it works, but think twice.
	Warning Severity = "warning"
	// Note: something to know; the spec is clean.
	Note Severity = "note"
)

// Finding is what the linter or a check has to say. Rule is stable.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Field    string   `json:"field"`
	Rule     string   `json:"rule"`
	Message  string   `json:"message"`
	Remedy   string   `json:"remedy"`
}

func (f Finding) String() string {
	p := Problem{File: f.File, Line: f.Line, Column: f.Column, Field: f.Field}
	return strings.TrimPrefix(p.object(), "field ") + ": " + string(f.Severity) + ": " + f.Message + " (" + f.Remedy + ") [" + f.Rule + "]"
}
