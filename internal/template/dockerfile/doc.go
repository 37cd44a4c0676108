// Package dockerfile reads the common subset of Dockerfiles into the steps of a template's build.
//
// One stage: FROM, RUN, COPY, ADD (of files), ENV, ARG, WORKDIR, USER, SHELL; ENTRYPOINT and CMD
// are the start command. EXPOSE, LABEL, MAINTAINER, VOLUME and STOPSIGNAL change nothing in a
// session and are noted. Everything else is refused with its line: nothing is read and ignored.
package dockerfile

import "github.com/dsec-platform/dsec/internal/template"

// Limits of what is read.
const (
	MaxSize  = 1 << 20
	MaxSteps = 500
)

// Options of Parse.
type Options struct {
	// Args are build arguments; those that the file does not declare are an error.
	Args map[string]string
	// Files is what COPY and ADD take from; its Open may be nil when no such instruction is expected.
	Files template.FileArchive
}

// Plan is a Dockerfile, read.
type Plan struct {
	From     string // image, or what the caller takes for a template
	Platform string // of the image; empty: this machine's
	Steps    []template.Step
	Start    template.StartCommand
	Notes    []string // what changes nothing, each with its line
}
