package e2b

import "github.com/dsec-platform/dsec/internal/errdefs"

// interpreter is the template that the packages of the code interpreter ask for unless told otherwise. No server has it from the start.
const interpreter = "code-interpreter-v1"

func lackingTemplate(err error, id string) error {
	if e := errdefs.From(err); id == interpreter && e.Reason == errdefs.NotFound {
		return errdefs.Userf(errdefs.NotFound, e.Object, "make it once: docs/e2b.md, \"The code interpreter\"", "%s", e.Message)
	}
	return err
}

// tooLarge tells a sandbox that no waiting makes room for in the words of who asked: its size is its template's.
func tooLarge(err *errdefs.Error, t *Resolved) error {
	if err.Reason != errdefs.NodeFull || err.Class != errdefs.User {
		return err
	}
	return errdefs.Userf(errdefs.InvalidArgument, "field templateID", "build the template with a smaller cpuCount and memoryMB, or use a larger machine", "template %s is too large for this server: %s", t.ID, err.Message)
}
