package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// failure is an error as it is shown, wherever it came from.
type failure struct {
	Class   string `json:"class"`
	Reason  string `json:"reason"`
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

func failureOf(err error) failure {
	if e, ok := errors.AsType[*dsec.Error](err); ok {
		return failure{e.Class, e.Reason, e.Object, e.Message, e.Remedy}
	}
	if u, ok := errors.AsType[usageError](err); ok {
		return failure{Class: string(errdefs.User), Reason: "usage", Message: u.Error()}
	}
	e := errdefs.From(err)
	if _, typed := errors.AsType[*errdefs.Error](err); !typed && e.Reason == errdefs.Internal {
		// A plain error of this process (a local file, a closed pipe) is no platform's failure.
		return failure{Class: string(errdefs.User), Reason: string(errdefs.InvalidArgument), Message: err.Error()}
	}
	return failure{string(e.Class), string(e.Reason), e.Object, e.Message, e.Remedy}
}

// report writes an error to standard error: as an object with -o json, else in
// a line with its class and a line with its remedy.
func (e *Env) report(err error) {
	if errors.Is(err, context.Canceled) && !e.JSON() {
		writeAll(e.Err, "dsec: interrupted\n")
		return
	}
	if ps, ok := spec.AsProblems(err); ok && !e.JSON() {
		for _, p := range ps {
			writeAll(e.Err, "dsec: "+p.String()+"\n")
		}
		return
	}
	f := failureOf(err)
	if e.JSON() {
		b, _ := json.Marshal(map[string]failure{"error": f})
		writeAll(e.Err, string(b)+"\n")
		return
	}
	if f.Reason == "usage" {
		writeAll(e.Err, "dsec: "+f.Message+"\n")
		return
	}
	line := f.Message
	if f.Object != "" {
		line = f.Object + ": " + line
	}
	writeAll(e.Err, fmt.Sprintf("dsec: %s [%s, %s]\n", line, f.Class, f.Reason))
	if f.Remedy != "" {
		writeAll(e.Err, "  remedy: "+f.Remedy+"\n")
	}
}

// code gives the exit code of an error.
func (e *Env) code(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	f := failureOf(err)
	switch {
	case f.Class == string(errdefs.Infrastructure):
		return exitPlatform
	case e.bare && f.Reason == string(errdefs.NotFound) && isProgram(f.Object):
		return exitNoProgram
	case e.bare:
		return exitNotRun
	}
	return exitFailed
}

// isProgram tells whether an error's object is a program in the box.
func isProgram(object string) bool {
	for _, p := range []string{"program ", "command "} {
		if len(object) > len(p) && object[:len(p)] == p {
			return true
		}
	}
	return false
}
