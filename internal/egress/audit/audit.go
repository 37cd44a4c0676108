// Package audit turns what happens on one box's way out into records: it fills in whose they are,
// and holds them to a rate, so that a box cannot spend the node's disk. What is left out is counted in
// a record of its own.
package audit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/limit"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// settle is how long after the first record that was left out the count is told, if nothing else happens.
const settle = time.Second

// Recorder records one box's decisions. It is safe for concurrent use.
type Recorder struct {
	sink   egress.Sink
	id     egress.Identity
	Counts Counts

	mu         sync.Mutex
	rate       int
	bucket     *limit.Bucket
	phase      string
	suppressed int64
	timer      *time.Timer
	closed     bool
}

// Counts are what egress.Stats shows.
type Counts struct {
	Allowed, Refused, Limited, Queries, Sent, Received, Records, Suppressed atomic.Int64
}

// New makes a recorder for a box; sink may be nil.
func New(sink egress.Sink, id egress.Identity) *Recorder { return &Recorder{sink: sink, id: id} }

// Policy sets the rate and the phase of the records to come.
func (r *Recorder) Policy(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = p.Phase()
	if n := p.Limits().AuditPerSecond; n != r.rate {
		r.rate, r.bucket = n, limit.NewBucket(float64(n), float64(2*n))
	}
}

// Record counts a decision and passes it on, or counts it as left out.
func (r *Recorder) Record(d egress.Decision) {
	r.count(d)
	if r.sink == nil {
		return
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	if !r.bucket.Take(1) {
		r.suppressed++
		r.Counts.Suppressed.Add(1)
		if r.timer == nil {
			r.timer = time.AfterFunc(settle, r.tell)
		}
		r.mu.Unlock()
		return
	}
	d.Phase = r.phase
	r.mu.Unlock()
	r.send(d)
}

func (r *Recorder) count(d egress.Decision) {
	switch {
	case d.Kind == egress.Close:
	case d.Verdict == egress.Allow:
		r.Counts.Allowed.Add(1)
	default:
		r.Counts.Refused.Add(1)
		if Limited(d.Reason) {
			r.Counts.Limited.Add(1)
		}
	}
	if d.Kind == egress.Query {
		r.Counts.Queries.Add(1)
	}
}

// Limited tells whether a reason is a limit's.
func Limited(reason policy.Reason) bool {
	switch reason {
	case policy.LimitBytes, policy.LimitConnections, policy.LimitConnects, policy.LimitDNS, policy.LimitNames, policy.LimitRecords:
		return true
	}
	return false
}

func (r *Recorder) send(d egress.Decision) {
	if d.Time.IsZero() {
		d.Time = time.Now()
	}
	d.Box, d.Session, d.Project = r.id.Box, r.id.Session, r.id.Project
	switch d.Kind {
	case egress.Connect, egress.Request, egress.Packet:
		if d.Flow == 0 { // it begins now; of a flow and of a query is said when they began
			d.Op = r.id.Cause()
		}
	}
	r.Counts.Records.Add(1)
	r.sink.Record(d)
}

// tell records how many were left out.
func (r *Recorder) tell() {
	r.mu.Lock()
	n := r.suppressed
	phase := r.phase
	r.suppressed, r.timer = 0, nil
	r.mu.Unlock()
	if n > 0 {
		r.send(egress.Decision{Kind: egress.Suppressed, Verdict: egress.Deny, Reason: policy.LimitRecords, Phase: phase, Count: n})
	}
}

// Close tells what was left out; later records go nowhere.
func (r *Recorder) Close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	if r.sink != nil {
		r.tell()
	}
}
