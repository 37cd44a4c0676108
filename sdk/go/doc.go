// Package dsec is the Go client of a DSec server: it makes sandboxed sessions,
// runs commands in them, and moves files in and out.
//
//	c, err := dsec.New(dsec.Options{})              // DSEC_URL, DSEC_API_KEY
//	s, err := c.Create(ctx, dsec.CreateOptions{Template: "python"})
//	defer s.Stop(context.WithoutCancel(ctx), "done")
//	r, err := s.Run(ctx, dsec.Command{Argv: []string{"python3", "-c", "print(1)"}})
//	fmt.Println(string(dsec.Output(r.GetStdout())))
//
// Every failure is an *Error with a class: "infrastructure" means that the
// platform failed, never the code in the box. Calls are safe to repeat because
// every command carries an operation id: the client repeats them itself when a
// connection is lost, and the server runs nothing twice.
//
// Messages are those of package dsecv1, generated from proto/dsec/v1; the
// aliases below name the ones that callers meet.
package dsec

import dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"

// Messages of the wire that callers meet. Their fields are documented in proto/dsec/v1.
type (
	Spec       = dsecv1.Spec
	Info       = dsecv1.Session
	Inspection = dsecv1.InspectResponse
	Selector   = dsecv1.Selector
	Outcome    = dsecv1.SessionResult
	Result     = dsecv1.Result
	Operation  = dsecv1.Operation
	Event      = dsecv1.ExecEvent
	FileInfo   = dsecv1.FileInfo
	FileChange = dsecv1.WatchResponse
	Template   = dsecv1.Template
)

// Phases of a session.
const (
	Pending   = "PENDING"
	Scheduled = "SCHEDULED"
	Running   = "RUNNING"
	Suspended = "SUSPENDED"
	Completed = "COMPLETED"
	Failed    = "FAILED"
)
