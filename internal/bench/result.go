// Package bench measures the product as its users see it (through the API of a
// running daemon) beside peers on the same machine in the same run. Passes of
// the systems alternate, and the figures reported are medians over the passes.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Result is one line of the report: one operation of one system.
type Result struct {
	System      string  `json:"system"`      // dsec, bwrap, crun, runc, docker, runsc, bare
	Op          string  `json:"op"`          // create, create_exec, exec, exec_http, destroy, file_put, file_get, density
	Mode        string  `json:"mode"`        // cold, pooled
	Pattern     string  `json:"pattern"`     // sequential, staggered, burst, open-loop
	Concurrency int     `json:"concurrency"` // operations in flight at most
	N           int     `json:"n"`           // operations a pass
	Passes      int     `json:"passes"`
	Failures    int     `json:"failures"` // over all passes
	P50         float64 `json:"p50_ms"`
	P90         float64 `json:"p90_ms"`
	P99         float64 `json:"p99_ms"`
	Max         float64 `json:"max_ms"`
	Rate        float64 `json:"rate_per_s"`
	Wall        float64 `json:"wall_s"`
	// CPU is the whole machine's CPU time an operation (kernel workers and both
	// sides of the call included), so that systems are comparable.
	CPU float64 `json:"cpu_ms_per_op"`

	PoolHitRate *float64 `json:"pool_hit_rate,omitempty"`
	MiBPerBox   *float64 `json:"mib_per_box,omitempty"`
	MiBPerUsed  *float64 `json:"mib_per_used_box,omitempty"` // after each has answered once, and rests again
	WakeP50     *float64 `json:"wake_p50_ms,omitempty"`      // of that answer: an exec in a box at rest
	WakeP99     *float64 `json:"wake_p99_ms,omitempty"`
	Live        *int     `json:"live,omitempty"`
	Answered    *int     `json:"answered,omitempty"`
	Adopted     *int     `json:"adopted,omitempty"`
	AdoptS      *float64 `json:"adopt_s,omitempty"`
	OpsKept     *int     `json:"ops_kept,omitempty"`
	Left        *int     `json:"left,omitempty"` // processes, cgroups, mounts, directories left after stop

	Note string `json:"note,omitempty"`
}

// Header says where and on what a report was measured.
type Header struct {
	Machine  Machine           `json:"machine"`
	Template string            `json:"template"`
	Digest   string            `json:"template_digest"`
	Spec     string            `json:"spec_digest"`
	Includes map[string]string `json:"includes"` // what each operation includes
	Peers    map[string]string `json:"peers"`    // name → version or why it is absent
}

// includes tells a reader from where to where each operation is timed.
var includes = map[string]string{
	"create":      "call of Create over the API to the reply that says RUNNING (authentication, validation, durable commit, admission, journal, box, guest ready)",
	"create_exec": "call of Create to the result of a first `true` (for peers: start of the process to its exit, which includes running `true` and tearing down); rate, wall and cpu include the destroy, but in a burst",
	"exec":        "call of Run(`true`) of the Go client to its result in a box that lives, over one keep-alive connection a worker",
	"exec_http":   "the same without a client library: one write of the request to the last byte of the answer, decoded, over one keep-alive connection a worker",
	"destroy":     "call of Stop to the reply, which comes after the reclaim is proven",
	"file_put":    "PUT of a file over HTTP to the reply after the atomic rename",
	"file_get":    "GET of a file over HTTP to its last byte",
	"density":     "live idle boxes: MemAvailable before minus after, when it has stopped moving, divided by boxes; every one answers an exec then, one after the other, and memory is looked at again",
}

// Write prints a report: one JSON object a line, or a table.
func Write(w io.Writer, jsonLines bool, h Header, results []Result) error {
	if jsonLines {
		enc := json.NewEncoder(w)
		if err := enc.Encode(h); err != nil {
			return err
		}
		for _, r := range results {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintf(w, "machine   %s\ntemplate  %s %s\nspec      %s\n", h.Machine, h.Template, h.Digest, h.Spec)
	for name, v := range h.Peers {
		fmt.Fprintf(w, "peer      %s: %s\n", name, v)
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "system\top\tmode\tpattern\tc\tn\tfail\tp50 ms\tp90\tp99\tmax\trate/s\twall s\tcpu ms/op\t")
	seen := map[string]bool{}
	for _, r := range results {
		seen[r.Op] = true
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%.2f\t%.2f\t\n",
			r.System, r.Op, r.Mode, r.Pattern, r.Concurrency, r.N, r.Failures, r.P50, r.P90, r.P99, r.Max, r.Rate, r.Wall, r.CPU)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if s := r.extras(); s != "" {
			fmt.Fprintf(w, "%s %s %s: %s\n", r.System, r.Op, r.Mode, s)
		}
	}
	for op := range seen {
		fmt.Fprintf(w, "%s: %s\n", op, includes[op])
	}
	return nil
}

func (r *Result) extras() string {
	s := ""
	add := func(format string, v any) { s += fmt.Sprintf(format+"  ", v) }
	if r.PoolHitRate != nil {
		add("pool hit rate %.2f", *r.PoolHitRate)
	}
	if r.MiBPerBox != nil {
		add("%.3f MiB a box", *r.MiBPerBox)
	}
	if r.MiBPerUsed != nil {
		add("%.3f MiB when it has answered", *r.MiBPerUsed)
		add("answer p50 %.2f ms", *r.WakeP50)
		add("p99 %.2f ms", *r.WakeP99)
	}
	if r.Live != nil {
		add("%d live", *r.Live)
	}
	if r.Answered != nil {
		add("%d answered", *r.Answered)
	}
	if r.Adopted != nil {
		add("%d adopted", *r.Adopted)
	}
	if r.AdoptS != nil {
		add("in %.2f s", *r.AdoptS)
	}
	if r.OpsKept != nil {
		add("%d running ops kept", *r.OpsKept)
	}
	if r.Left != nil {
		add("%d left after stop", *r.Left)
	}
	return s + r.Note
}
