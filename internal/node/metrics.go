package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// metrics of a node. No label names a box or a session: their number is unbounded.
type metrics struct {
	node    *Node
	reg     prometheus.Registerer
	removed atomic.Int64 // orphans, for Stats

	creates  *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	destroys prometheus.Histogram
	events   *prometheus.CounterVec
	misses   *prometheus.CounterVec
	orphans  prometheus.Counter
	adopted  prometheus.Counter

	boxes, idle, target, making, promised, capacity, cpu, cpuCapacity *prometheus.Desc
}

func newMetrics(n *Node, reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "dsec", Subsystem: "node", Name: name, Help: help}
	}
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Namespace: "dsec", Subsystem: "node", Name: name, Help: help,
			Buckets: []float64{.0005, .001, .0015, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}
	}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("dsec_node_"+name, help, nil, nil)
	}
	m := &metrics{
		node: n, reg: reg,
		creates:  prometheus.NewCounterVec(counter("creates_total", "Creates by outcome (ok, or the reason of the error) and by whether the box came from the pool."), []string{"outcome", "pooled"}),
		latency:  prometheus.NewHistogramVec(histogram("create_seconds", "Time of a successful create."), []string{"pooled"}),
		destroys: prometheus.NewHistogram(histogram("destroy_seconds", "Time from a destroy to the proof that nothing is left.")),
		events:   prometheus.NewCounterVec(counter("events_total", "Events of boxes by kind."), []string{"kind"}),
		misses:   prometheus.NewCounterVec(counter("pool_misses_total", "Creates that did not get a pooled box, by reason."), []string{"reason"}),
		orphans:  prometheus.NewCounter(counter("orphans_removed_total", "Things of unknown boxes that a patrol found and removed.")),
		adopted:  prometheus.NewCounter(counter("adopted_total", "Boxes taken over from an earlier daemon.")),

		boxes:       desc("boxes", "Live boxes of sessions, suspended ones included."),
		idle:        desc("pool_idle", "Idle pooled boxes."),
		target:      desc("pool_target", "Idle pooled boxes that the arrival rate asks for."),
		making:      desc("boxes_making", "Boxes in the making for sessions."),
		promised:    desc("memory_promised_bytes", "Memory promised to boxes."),
		capacity:    desc("memory_capacity_bytes", "Memory that may be promised."),
		cpu:         desc("cpu_promised_cores", "Cores promised to boxes."),
		cpuCapacity: desc("cpu_capacity_cores", "Cores that may be promised."),
	}
	if reg == nil {
		return m, nil
	}
	return m, reg.Register(m)
}

func (m *metrics) unregister() {
	if m.reg != nil {
		m.reg.Unregister(m)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.creates, m.latency, m.destroys, m.events, m.misses, m.orphans, m.adopted}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.boxes, m.idle, m.target, m.making, m.promised, m.capacity, m.cpu, m.cpuCapacity} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	st := m.node.Stats(context.Background())
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(m.boxes, float64(st.Boxes))
	gauge(m.idle, float64(st.Pooled))
	gauge(m.target, float64(st.PoolTarget))
	gauge(m.making, float64(st.Creating))
	gauge(m.promised, float64(st.MemPromised))
	gauge(m.capacity, float64(st.MemTotal))
	gauge(m.cpu, st.CPUPromised)
	gauge(m.cpuCapacity, st.CPUTotal)
}

func (m *metrics) created(b *Bound, err error, d time.Duration) {
	if err != nil {
		m.creates.WithLabelValues(string(errdefs.From(err).Reason), "false").Inc()
		return
	}
	pooled := "false"
	if b.Pooled {
		pooled = "true"
	}
	m.creates.WithLabelValues("ok", pooled).Inc()
	m.latency.WithLabelValues(pooled).Observe(d.Seconds())
}

func (m *metrics) cold(reason string) {
	m.misses.WithLabelValues(reason).Inc()
	m.node.pools.missed(reason)
}

func (m *metrics) destroyed(d time.Duration) { m.destroys.Observe(d.Seconds()) }

func (m *metrics) event(k EventKind) { m.events.WithLabelValues(string(k)).Inc() }

func (m *metrics) orphan() {
	m.orphans.Inc()
	m.removed.Add(1)
}
