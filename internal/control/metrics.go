package control

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector gives the counters and gauges as Prometheus metrics, without any session's id.
func (c *Control) Collector() prometheus.Collector {
	n := &c.counters
	m := &collector{control: c}
	for _, d := range []struct {
		name, help, label string
		values            map[string]*atomic.Int64 // by the label's value; one "" without a label
	}{
		{"dsec_sessions_created_total", "Sessions accepted.", "", one(&n.Created)},
		{"dsec_sessions_queued_total", "Sessions that had to wait for a place.", "", one(&n.Queued)},
		{"dsec_sessions_refused_total", "Sessions refused by the queue's or a project's limit.", "", one(&n.Refused)},
		{"dsec_sessions_ended_total", "Sessions that ended, by how.", "outcome", map[string]*atomic.Int64{
			"completed": &n.Completed, "failed_user": &n.FailedUser, "failed_limit": &n.FailedLimit,
			"failed_policy": &n.FailedPolicy, "failed_infrastructure": &n.FailedInfrastructure}},
		{"dsec_sessions_idle_ended_total", "Sessions ended because nobody used them.", "", one(&n.IdleEnds)},
		{"dsec_sessions_suspended_ended_total", "Sessions ended because they were suspended for too long.", "", one(&n.SuspendedEnds)},
		{"dsec_owners_lost_total", "Leases whose owner was silent for too long.", "", one(&n.OwnersLost)},
		{"dsec_sessions_audits_total", "Sessions whose run time was over.", "", one(&n.Audits)},
		{"dsec_session_placements_total", "Answers of the node to placements.", "answer", map[string]*atomic.Int64{
			"pooled": &n.Pooled, "cold": &n.Cold, "node_full": &n.NodeFull}},
		{"dsec_creates_revoked_total", "Creates undone because their caller went away.", "", one(&n.Revoked)},
		{"dsec_creates_repeated_total", "Creates answered by an idempotency key.", "", one(&n.IdempotentHits)},
		{"dsec_boxes_lost_total", "Boxes that ended unasked.", "", one(&n.BoxesLost)},
		{"dsec_boxes_oom_kills_total", "Kills for lack of memory within a box's limit.", "", one(&n.OOMKills)},
		{"dsec_boxes_memory_warnings_total", "Boxes near their memory limit.", "", one(&n.MemWarnings)},
		{"dsec_boxes_orphaned_total", "Boxes found that belong to no session.", "", one(&n.Orphans)},
		{"dsec_reclaim_retries_total", "Reclaims that the node could not finish at once.", "", one(&n.ReclaimRetries)},
		{"dsec_store_write_failures_total", "Session states that could not be written at once.", "", one(&n.WriteFailures)},
	} {
		var labels []string
		if d.label != "" {
			labels = []string{d.label}
		}
		m.counters = append(m.counters, counter{prometheus.NewDesc(d.name, d.help, labels, nil), d.values})
	}
	m.live = prometheus.NewDesc("dsec_sessions_live", "Sessions that have not ended, by phase.", []string{"phase"}, nil)
	m.waiting = prometheus.NewDesc("dsec_sessions_waiting", "Sessions in the queue.", nil, nil)
	return m
}

func one(v *atomic.Int64) map[string]*atomic.Int64 { return map[string]*atomic.Int64{"": v} }

type collector struct {
	control       *Control
	counters      []counter
	live, waiting *prometheus.Desc
}

type counter struct {
	desc   *prometheus.Desc
	values map[string]*atomic.Int64
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.counters {
		out <- c.desc
	}
	out <- m.live
	out <- m.waiting
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.counters {
		for label, v := range c.values {
			var labels []string
			if label != "" {
				labels = []string{label}
			}
			out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(v.Load()), labels...)
		}
	}
	g := m.control.Gauges()
	for phase, n := range g.Phases {
		out <- prometheus.MustNewConstMetric(m.live, prometheus.GaugeValue, float64(n), phase)
	}
	out <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(g.Waiting))
}
