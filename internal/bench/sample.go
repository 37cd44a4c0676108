package bench

import (
	"slices"
	"sync"
	"time"
)

// pass is one run of one operation of one system: latencies, failures, wall
// and CPU time. Adding is safe for concurrent use.
type pass struct {
	mu       sync.Mutex
	lat      []time.Duration
	failures int
	firstErr error
	wall     time.Duration
	cpu      time.Duration
}

func (p *pass) add(d time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failures++
		if p.firstErr == nil {
			p.firstErr = err
		}
		return
	}
	p.lat = append(p.lat, d)
}

// quantile is the nearest-rank percentile; lat is sorted.
func quantile(lat []time.Duration, q float64) float64 {
	if len(lat) == 0 {
		return 0
	}
	i := max(int(q*float64(len(lat))+0.999999)-1, 0)
	return float64(lat[min(i, len(lat)-1)]) / float64(time.Millisecond)
}

// reduce makes one result of several passes: the median of each figure.
func reduce(r Result, passes []*pass) Result {
	r.Passes = len(passes)
	var p50, p90, p99, maxs, rate, wall, cpu []float64
	for _, p := range passes {
		slices.Sort(p.lat)
		r.N = len(p.lat) + p.failures
		r.Failures += p.failures
		if p.firstErr != nil && r.Note == "" {
			r.Note = "first failure: " + p.firstErr.Error()
		}
		p50 = append(p50, quantile(p.lat, 0.50))
		p90 = append(p90, quantile(p.lat, 0.90))
		p99 = append(p99, quantile(p.lat, 0.99))
		maxs = append(maxs, quantile(p.lat, 1))
		wall = append(wall, p.wall.Seconds())
		if p.wall > 0 {
			rate = append(rate, float64(len(p.lat))/p.wall.Seconds())
		}
		if n := len(p.lat); n > 0 {
			cpu = append(cpu, float64(p.cpu)/float64(time.Millisecond)/float64(n))
		}
	}
	r.P50, r.P90, r.P99, r.Max = median(p50), median(p90), median(p99), median(maxs)
	r.Rate, r.Wall, r.CPU = median(rate), median(wall), median(cpu)
	return r
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
