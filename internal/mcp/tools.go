package mcp

import (
	"context"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *Server) addTools(p *sdk.Server) {
	yes, no := true, false
	add(s, p, &sdk.Tool{
		Name: "create", Title: "Make a box",
		Description: "Make an isolated Linux box and return the id of its session, which the other tools take. It is ready when the call returns. " +
			"It ends with this connection, or when stopped, unless keep is true.",
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no},
	}, s.create)
	add(s, p, &sdk.Tool{
		Name: "exec", Title: "Run a command in a box",
		Description: "Run a shell script (or a program with arguments) in a box, wait for its end and return its exit code and output. " +
			"After timeout_seconds everything it started is killed and timed_out is true, with the output until then. " +
			"Start what shall live on with `cmd > log 2>&1 &`. Give shell a name to keep directory, variables and functions from call to call. " +
			"Long output keeps its begin and end.",
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no},
	}, s.exec)
	add(s, p, &sdk.Tool{
		Name: "read", Title: "Read a file of a box",
		Description: "Read a file, or a part of it. Text comes as it is, anything else in base64. When more is left, next_offset says where to go on.",
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
	}, s.read)
	add(s, p, &sdk.Tool{
		Name: "write", Title: "Write a file of a box",
		Description: "Write a whole file, or append to one. Missing directories are made. The old content stays until the new one is whole.",
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &yes, IdempotentHint: false, OpenWorldHint: &no},
	}, s.write)
	add(s, p, &sdk.Tool{
		Name: "list", Title: "List boxes",
		Description: "List the live boxes that this connection made; with all, every live one of the project.",
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
	}, s.list)
	add(s, p, &sdk.Tool{
		Name: "stop", Title: "End a box",
		Description: "End a box. Its processes and files are gone when the call returns. Stopping an ended one is no error.",
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &yes, IdempotentHint: true, OpenWorldHint: &no},
	}, s.stop)
}

// add offers a tool. Its handler gets the caller's connection and a context that
// ends with the call or the connection.
func add[In, Out any](s *Server, p *sdk.Server, t *sdk.Tool, h func(context.Context, *connection, In) (Out, error)) {
	sdk.AddTool(p, t, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		var none Out
		cn, err := s.connection(req.Session, keyOf(req))
		if err != nil {
			return nil, none, err
		}
		ctx, done := cn.during(ctx)
		defer done()
		began := time.Now()
		out, err := h(ctx, cn, in)
		s.o.Log.Debug("tool call", "tool", t.Name, "ms", time.Since(began).Milliseconds(), "err", err)
		if err != nil {
			return nil, none, err
		}
		return nil, out, nil
	})
}
