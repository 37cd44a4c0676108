package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func ms(v ...int) (out []time.Duration) {
	for _, x := range v {
		out = append(out, time.Duration(x)*time.Millisecond)
	}
	return out
}

func upTo(n int) (out []time.Duration) {
	for i := range n {
		out = append(out, time.Duration(i+1)*time.Millisecond)
	}
	return out
}

// The nearest rank: the smallest value that at least that share of all does not exceed.
func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		lat  []time.Duration
		q    float64
		want float64
	}{
		{nil, 0.5, 0},
		{ms(7), 0, 7}, {ms(7), 0.5, 7}, {ms(7), 1, 7},
		{ms(1, 2), 0.5, 1}, {ms(1, 2), 0.51, 2},
		{ms(1, 2, 3), 0.5, 2},
		{upTo(10), 0.9, 9}, {upTo(10), 0.99, 10}, {upTo(10), 1, 10},
		{upTo(100), 0.99, 99}, {upTo(100), 0.5, 50},
		{upTo(1000), 0.999, 999}, {upTo(1000), 0.99, 990},
		{upTo(101), 0.5, 51},
	} {
		if got := quantile(c.lat, c.q); got != c.want {
			t.Errorf("quantile %v of %d values: %v, want %v", c.q, len(c.lat), got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		before := append([]float64{}, c.v...)
		if got := median(c.v); got != c.want {
			t.Errorf("median %v: %v, want %v", c.v, got, c.want)
		}
		for i := range before {
			if c.v[i] != before[i] {
				t.Errorf("median has sorted its argument: %v", c.v)
			}
		}
	}
}

func TestReduce(t *testing.T) {
	lost, later := errors.New("lost"), errors.New("later")
	of := func(wall, cpu time.Duration, lat []time.Duration, errs ...error) *pass {
		p := &pass{wall: wall, cpu: cpu}
		for _, d := range lat {
			p.add(d, nil)
		}
		for _, err := range errs {
			p.add(0, err)
		}
		return p
	}
	for _, c := range []struct {
		name   string
		passes []*pass
		want   Result
	}{
		{"none", nil, Result{}},
		{"one", []*pass{of(2*time.Second, 40*time.Millisecond, ms(3, 1, 4, 2))},
			Result{Passes: 1, N: 4, P50: 2, P90: 4, P99: 4, Max: 4, Rate: 2, Wall: 2, CPU: 10}},
		{"the median of each figure", []*pass{
			of(time.Second, 10*time.Millisecond, ms(1)), of(4*time.Second, 90*time.Millisecond, ms(100)), of(2*time.Second, 20*time.Millisecond, ms(5)),
		}, Result{Passes: 3, N: 1, P50: 5, P90: 5, P99: 5, Max: 5, Rate: 0.5, Wall: 2, CPU: 20}},
		{"failures have no latency, and are not hidden", []*pass{
			of(time.Second, 4*time.Millisecond, ms(1, 1), lost, later), of(time.Second, 4*time.Millisecond, ms(3, 3, 3, 3)),
		}, Result{Passes: 2, N: 4, Failures: 2, P50: 2, P90: 2, P99: 2, Max: 2, Rate: 3, Wall: 1, CPU: 1.5, Note: "first failure: lost"}},
		{"nothing but failures", []*pass{of(time.Second, time.Millisecond, nil, lost)},
			Result{Passes: 1, N: 1, Failures: 1, Wall: 1, Note: "first failure: lost"}},
	} {
		if got := reduce(Result{}, c.passes); got != c.want {
			t.Errorf("%s: got  %+v\nwant %+v", c.name, got, c.want)
		}
	}
	if got := reduce(Result{System: "dsec", Note: "mine"}, []*pass{of(1, 1, nil, lost)}); got.Note != "mine" || got.System != "dsec" {
		t.Errorf("what was known is lost: %+v", got)
	}
}

func TestLoadValidate(t *testing.T) {
	for _, c := range []struct {
		name        string
		load        Load
		concurrency int
		wrong       string // what the error names; "" for none
	}{
		{"sequential is one at a time", Load{Pattern: "sequential", N: 9, Concurrency: 7}, 1, ""},
		{"staggered", Load{Pattern: "staggered", N: 9}, 4, ""},
		{"staggered as asked", Load{Pattern: "staggered", N: 9, Concurrency: 2}, 2, ""},
		{"a burst is all at once", Load{Pattern: "burst", N: 9}, 9, ""},
		{"a bounded burst", Load{Pattern: "burst", N: 9, Concurrency: 3}, 3, ""},
		{"open loop", Load{Pattern: "open-loop", N: 9, Rate: 10}, 9, ""},
		{"nothing", Load{Pattern: "burst"}, 0, "--n 0"},
		{"less than nothing", Load{Pattern: "burst", N: -1}, 0, "--n -1"},
		{"no rate", Load{Pattern: "open-loop", N: 9}, 0, "--rate"},
		{"a negative rate", Load{Pattern: "open-loop", N: 9, Rate: -1}, 0, "--rate"},
		{"no number as rate", Load{Pattern: "open-loop", N: 9, Rate: math.NaN()}, 0, "--rate"},
		{"less than no worker", Load{Pattern: "staggered", N: 9, Concurrency: -2}, 0, "--concurrency -2"},
		{"no pattern", Load{N: 9}, 0, "--pattern"},
		{"another pattern", Load{Pattern: "bursts", N: 9}, 0, `"bursts"`},
	} {
		err := c.load.Validate()
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
		if err == nil && c.load.Concurrency != c.concurrency {
			t.Errorf("%s: %d at a time, want %d", c.name, c.load.Concurrency, c.concurrency)
		}
	}
}

// A stalled system cannot hide behind a late start: what was due is timed from then.
func TestLoadIsTimedFromWhenItWasDue(t *testing.T) {
	for _, c := range []struct {
		load      Load
		first     float64 // latency of the fastest, in ms
		slowest   float64
		most      int64 // in flight
		wallAbove time.Duration
	}{
		{Load{Pattern: "sequential", N: 5}, 100, 100, 1, 500 * time.Millisecond},
		{Load{Pattern: "burst", N: 4, Concurrency: 1}, 100, 400, 1, 400 * time.Millisecond},
		{Load{Pattern: "burst", N: 4}, 100, 100, 4, 100 * time.Millisecond},
		{Load{Pattern: "open-loop", N: 5, Rate: 20}, 100, 100, 2, 300 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			if err := c.load.Validate(); err != nil {
				t.Fatal(err)
			}
			var now, most atomic.Int64
			p := c.load.run(t.Context(), func(context.Context, time.Time, int) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(100*time.Millisecond - time.Nanosecond)
				now.Add(-1)
				time.Sleep(time.Nanosecond)
				return nil
			})
			r := reduce(Result{}, []*pass{p})
			if r.N != c.load.N || quantile(p.lat, 0) != c.first || r.Max != c.slowest || most.Load() > c.most || p.wall < c.wallAbove {
				t.Errorf("%+v: fastest %v, %+v, %d at a time", c.load, quantile(p.lat, 0), r, most.Load())
			}
		})
	}
}

// Every line of the report is one JSON object, the machine first.
func TestWriteJSONLines(t *testing.T) {
	live := 3
	var out bytes.Buffer
	if err := Write(&out, true, Header{Template: "t"}, []Result{{System: "dsec", Op: "create", P50: 1.5}, {System: "bwrap", Live: &live}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{`"template":"t"`, `"p50_ms":1.5`, `"live":3`}
	if len(lines) != len(want) {
		t.Fatalf("%q", lines)
	}
	for i, l := range lines {
		if !json.Valid([]byte(l)) || !strings.Contains(l, want[i]) {
			t.Errorf("line %d: %s", i, l)
		}
	}
}
