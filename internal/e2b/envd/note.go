package envd

import (
	"encoding/json"

	"github.com/dsec-platform/dsec/gen/process"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// noted is what the guest keeps for List beside the command line.
type noted struct {
	Tag  *string           `json:"t,omitempty"`
	Envs map[string]string `json:"e,omitempty"`
	Cwd  *string           `json:"c,omitempty"`
}

// note is what List is to tell of a process. An environment that is too large is not told.
func note(q *process.StartRequest) string {
	n := noted{q.Tag, q.GetProcess().GetEnvs(), q.GetProcess().Cwd}
	b, err := json.Marshal(n)
	if err != nil || len(b) > guestproto.MaxNote {
		n.Envs = nil
		b, err = json.Marshal(n)
	}
	if err != nil || len(b) > guestproto.MaxNote {
		n.Cwd = nil
		b, _ = json.Marshal(n) // a tag is short, and text
	}
	return string(b)
}

// readNote reads what note wrote. Anything else, such as of an operation that was not started here, says nothing.
func readNote(s string) (n noted) {
	if json.Unmarshal([]byte(s), &n) != nil {
		return noted{}
	}
	return n
}

// processInfo is an operation as List tells it. Of a long command line the beginning is kept.
func processInfo(op *guestproto.OpInfo) *process.ProcessInfo {
	n := readNote(op.Note)
	c := &process.ProcessConfig{Envs: n.Envs, Cwd: n.Cwd}
	for i, a := range op.Argv {
		a = utf8Text(a)
		if i == 0 {
			c.Cmd = a
			continue
		}
		c.Args = append(c.Args, a)
	}
	return &process.ProcessInfo{Config: c, Pid: uint32(op.Pid), Tag: n.Tag}
}
