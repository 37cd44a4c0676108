package rollout

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Summary is the whole run.
type Summary struct {
	Run      string  `json:"run"`
	Rollouts int64   `json:"rollouts"` // played to an end
	Pass     int64   `json:"pass"`
	Fail     int64   `json:"fail"`
	Errors   int64   `json:"errors"`
	Masked   int64   `json:"masked"`
	Retried  int64   `json:"retried"`
	Unplayed int64   `json:"unplayed"` // not started because the run was stopped
	Reward   Rewards `json:"reward"`
	// Latencies in milliseconds: create, create_first_result, exec, exec_overhead.
	Latency []Latency `json:"latency"`
	// Failures of fails and errors, by class and reason.
	Failures []Failure `json:"failures"`
	// RetriedFailures were repeated, and so are not in the verdicts.
	RetriedFailures []Failure `json:"retried_failures,omitempty"`
	WallS           float64   `json:"wall_s"`
	Rate            float64   `json:"rollouts_per_s"`
	Execs           int64     `json:"execs"`
	ExecRate        float64   `json:"execs_per_s"`
}

// Rewards of the rollouts that have one.
type Rewards struct {
	N    int64   `json:"n"`
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// Latency is a distribution in milliseconds.
type Latency struct {
	Of  string  `json:"of"`
	N   int64   `json:"n"`
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// Failure is how often one thing went wrong.
type Failure struct {
	Class   string `json:"class"`
	Reason  string `json:"reason"`
	N       int64  `json:"n"`
	Masked  int64  `json:"masked"`
	Example string `json:"example"`
}

// metrics collects from all workers.
type metrics struct {
	mu                              *sync.Mutex
	create, first, execH, overhead  *hdrhistogram.Histogram // microseconds
	masked, rewards                 int64
	rewardSum, rewardMin, rewardMax float64
	failures, again                 map[[2]string]*Failure
}

func newMetrics() metrics {
	h := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(24*time.Hour/time.Microsecond), 3) }
	return metrics{mu: &sync.Mutex{}, create: h(), first: h(), execH: h(), overhead: h(), failures: map[[2]string]*Failure{}, again: map[[2]string]*Failure{}}
}

// record takes a duration; one over a day is counted as a day.
func record(h *hdrhistogram.Histogram, us int64) {
	_ = h.RecordValue(min(max(us, 1), h.HighestTrackableValue()))
}

func (m *metrics) exec(call, command time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record(m.execH, call.Microseconds())
	record(m.overhead, (call - command).Microseconds())
}

func (m *metrics) result(r *Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Session != "" {
		record(m.create, int64(r.Create*1000))
	}
	if r.FirstResult > 0 {
		record(m.first, int64(r.FirstResult*1000))
	}
	if r.Masked {
		m.masked++
	}
	if v := r.Reward; v != nil {
		if m.rewards == 0 {
			m.rewardMin, m.rewardMax = *v, *v
		}
		m.rewards++
		m.rewardSum += *v
		m.rewardMin, m.rewardMax = min(m.rewardMin, *v), max(m.rewardMax, *v)
	}
	if r.Verdict != Pass {
		fail(m.failures, r)
	}
}

func (m *metrics) retried(r *Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fail(m.again, r)
}

func fail(into map[[2]string]*Failure, r *Result) {
	k := [2]string{r.Class, r.Reason}
	f := into[k]
	if f == nil {
		f = &Failure{Class: r.Class, Reason: r.Reason, Example: fmt.Sprintf("%s: %s", r.Task, r.Message)}
		into[k] = f
	}
	f.N++
	if r.Masked {
		f.Masked++
	}
}

func (m *metrics) firstP50() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.first.ValueAtQuantile(50)) * time.Microsecond
}

func (m *metrics) summary(r *Runner, wall time.Duration) Summary {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := r.at.progress()
	s := Summary{
		Run: r.o.ID, Rollouts: p.Done, Pass: p.Pass, Fail: p.Fail, Errors: p.Errors, Retried: p.Retried, Masked: m.masked, Unplayed: p.Total - p.Done,
		Reward: Rewards{N: m.rewards, Min: m.rewardMin, Max: m.rewardMax}, WallS: wall.Seconds(),
		Rate: float64(p.Done) / wall.Seconds(), Execs: m.execH.TotalCount(), ExecRate: float64(m.execH.TotalCount()) / wall.Seconds(),
		Failures: sorted(m.failures), RetriedFailures: sorted(m.again),
	}
	if m.rewards > 0 {
		s.Reward.Mean = m.rewardSum / float64(m.rewards)
	}
	for _, l := range []struct {
		of string
		h  *hdrhistogram.Histogram
	}{{"create", m.create}, {"create_first_result", m.first}, {"exec", m.execH}, {"exec_overhead", m.overhead}} {
		q := func(p float64) float64 { return float64(l.h.ValueAtQuantile(p)) / 1000 }
		s.Latency = append(s.Latency, Latency{l.of, l.h.TotalCount(), q(50), q(90), q(99), float64(l.h.Max()) / 1000})
	}
	return s
}

func sorted(m map[[2]string]*Failure) []Failure {
	out := []Failure{}
	for f := range maps.Values(m) {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Failure) int {
		if a.N != b.N {
			return int(b.N - a.N)
		}
		if a.Class+a.Reason < b.Class+b.Reason {
			return -1
		}
		return 1
	})
	return out
}

// Write prints the summary as tables.
func (s *Summary) Write(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(tw, "ROLLOUTS\tPASS\tFAIL\tERROR\tMASKED\tRETRIED\tUNPLAYED\tREWARD MEAN\tMIN\tMAX\n")
	fmt.Fprintf(tw, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.3f\t%g\t%g\n\n", s.Rollouts, s.Pass, s.Fail, s.Errors, s.Masked, s.Retried, s.Unplayed, s.Reward.Mean, s.Reward.Min, s.Reward.Max)
	_ = tw.Flush()
	fmt.Fprintf(tw, "LATENCY (ms)\tN\tP50\tP90\tP99\tMAX\n")
	for _, l := range s.Latency {
		fmt.Fprintf(tw, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\n", names[l.Of], l.N, l.P50, l.P90, l.P99, l.Max)
	}
	_ = tw.Flush()
	writeFailures(tw, "FAILURES", s.Failures)
	writeFailures(tw, "RETRIED", s.RetriedFailures)
	fmt.Fprintf(w, "\n%d rollouts in %.1f s: %.1f rollouts/s, %.1f execs/s\n", s.Rollouts, s.WallS, s.Rate, s.ExecRate)
}

var names = map[string]string{
	"create": "create → RUNNING", "create_first_result": "create → first result", "exec": "exec, whole call", "exec_overhead": "exec, without the command",
}

func writeFailures(tw *tabwriter.Writer, title string, fs []Failure) {
	if len(fs) == 0 {
		return
	}
	fmt.Fprintf(tw, "\n%s\tREASON\tN\tMASKED\tEXAMPLE\n", title)
	for _, f := range fs {
		// Messages may carry what a box printed: no control characters for the terminal.
		ex := strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, f.Example)
		if r := []rune(ex); len(r) > 80 {
			ex = string(r[:79]) + "…"
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%s\n", f.Class, f.Reason, f.N, f.Masked, ex)
	}
	_ = tw.Flush()
}
