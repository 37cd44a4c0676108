package dsec

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// CreateOptions say what a session is made of. The zero value is a session of
// the template "base" with the production defaults.
type CreateOptions struct {
	Template string // "name" or "name@version"
	// Overrides of the template's environment: Spec or SpecYAML, the text of a spec file.
	Spec     *Spec
	SpecYAML string
	Env      map[string]string
	Secrets  map[string]string // reach the session's processes and nothing else
	Labels   map[string]string
	Job      string
	Code     []byte // a tar, plain or compressed, unpacked before the session is RUNNING
	CodeDir  string // default /workspace
	Priority string
	NoPool   bool
	NoWait   bool // answer when queued or placed
	// Lease that owns the sessions: Lease.ID; empty: none.
	Lease string
	// Lifetime of each session, after which its time is up, whatever it does; zero: none. Session.SetDeadline moves it.
	Lifetime time.Duration
	// AtDeadline is what is done then: "stop" (also when empty) or "suspend".
	AtDeadline string
	// IdempotencyKey makes a repeated create give the same sessions for 24 h; the
	// client then repeats it when the connection is lost. Without a key a lost or
	// cancelled create leaves nothing.
	IdempotencyKey string
}

// CreateResult is one item of CreateN.
type CreateResult struct {
	Session *Session
	Err     error
}

// Create makes one session and answers when it is RUNNING. A session that
// FAILED is an error; it needs no Stop.
func (c *Client) Create(ctx context.Context, o CreateOptions) (*Session, error) {
	m, err := o.message(1)
	if err != nil {
		return nil, err
	}
	r, err := call(ctx, c, o.IdempotencyKey != "", c.Sessions.Create, &dsecv1.CreateRequest{IdempotencyKey: o.IdempotencyKey, Session: m})
	if err != nil {
		return nil, err
	}
	if len(r.GetResults()) != 1 {
		return nil, &Error{Class: ClassInfrastructure, Reason: "internal", Scope: "platform", Message: "the server answered a create of one session with another number of items"}
	}
	res := c.created(r.GetResults()[0])
	return res.Session, res.Err
}

// CreateN makes n sessions in one request and calls each, if not nil, as items are
// answered, one at a time. The results are in order; the error is about the whole
// request, after which the results that arrived are still given. The items that
// did not arrive have an error too.
func (c *Client) CreateN(ctx context.Context, n int, o CreateOptions, each func(i int, r CreateResult)) ([]CreateResult, error) {
	m, err := o.message(n)
	if err != nil {
		return nil, err
	}
	results := make([]CreateResult, n)
	req := &dsecv1.CreateStreamRequest{IdempotencyKey: o.IdempotencyKey, Session: m}
	// With a key the items that were answered before a lost connection come again.
	_, err = retry(ctx, c, o.IdempotencyKey != "", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.receiveItems(ctx, req, results, each)
	})
	for i := range results {
		if results[i] == (CreateResult{}) {
			results[i].Err = err
			if err == nil {
				results[i].Err = &Error{Class: ClassInfrastructure, Reason: "internal", Scope: "platform", Message: "the server did not answer this item"}
			}
		}
	}
	return results, err
}

func (c *Client) receiveItems(ctx context.Context, req *dsecv1.CreateStreamRequest, results []CreateResult, each func(int, CreateResult)) error {
	stream, err := c.Sessions.CreateStream(ctx, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		item, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		i := int(item.GetIndex())
		if i < 0 || i >= len(results) || results[i] != (CreateResult{}) {
			continue
		}
		results[i] = c.created(item.GetResult())
		if each != nil {
			each(i, results[i])
		}
	}
}

func (c *Client) created(r *dsecv1.SessionResult) CreateResult {
	res := CreateResult{}
	if id := r.GetId(); id != "" {
		res.Session = &Session{c: c, id: id, info: r.GetSession()}
	}
	if e := r.GetError(); e != nil {
		res.Err = FromWire(e)
	}
	return res
}

func (o *CreateOptions) message(n int) (*dsecv1.NewSession, error) {
	m := &dsecv1.NewSession{
		Count: int32(n), Template: o.Template, Env: o.Env, Secrets: o.Secrets, Labels: o.Labels, Job: o.Job,
		Code: o.Code, CodeDir: o.CodeDir, Priority: o.Priority, NoPool: o.NoPool, NoWait: o.NoWait,
		LeaseId: o.Lease, LifetimeMs: ceilMs(o.Lifetime), AtDeadline: o.AtDeadline,
	}
	switch {
	case o.Spec != nil && o.SpecYAML != "":
		return nil, invalid("spec", "give one of Spec and SpecYAML", "is given twice")
	case o.Spec != nil:
		m.Environment = &dsecv1.NewSession_Spec{Spec: proto.CloneOf(o.Spec)}
	case o.SpecYAML != "":
		m.Environment = &dsecv1.NewSession_SpecYaml{SpecYaml: o.SpecYAML}
	}
	return m, nil
}
