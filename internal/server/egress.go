package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/credential"
	"github.com/dsec-platform/dsec/internal/egress/link"
	"github.com/dsec-platform/dsec/internal/egress/proxy"
	"github.com/dsec-platform/dsec/internal/egress/trail"
	"github.com/dsec-platform/dsec/internal/egress/uplink"
	"github.com/dsec-platform/dsec/internal/site"
)

// way is what boxes get out by.
type way struct {
	site    *site.Site
	network *uplink.Network
	trail   *trail.Trail
	proxy   string // where boxes have it in place of a device; empty: they have devices
}

// egress composes the way out. Devices of boxes outlive it.
func (s *server) egress(registry prometheus.Registerer) (*way, error) {
	c := s.cfg.File.Egress
	resolvers, err := c.Addresses()
	if err != nil {
		return nil, err
	}
	never, err := c.Prefixes()
	if err != nil {
		return nil, err
	}
	unusable := link.Usable()
	proxied, err := c.Attach.Proxied(unusable)
	if err != nil {
		return nil, err
	}
	w := &way{}
	if proxied {
		w.proxy = proxy.Address
	}
	if proxied && unusable != nil {
		s.log.Warn("boxes can have no network device here: sessions with a network go by the proxy in their box", "proxy", proxy.Address, "err", unusable)
	}
	credentials, err := credential.Open(s.path("egress/authorities"), c.Credentials)
	if err != nil {
		return nil, err
	}
	rules, err := site.New(c, site.Trust{Credentials: credentials, Dir: s.path("egress/trusted")})
	if err != nil {
		return nil, err
	}
	record, err := trail.Open(s.path("egress/log"), int64(c.KeepLog), s.log)
	if err != nil {
		return nil, err
	}
	s.onClose(record.Close)
	network := uplink.New(egress.Config{
		Resolvers: resolvers, Never: never, Sink: record, Credentials: credentials, Bandwidth: int64(c.Bandwidth), Log: s.log,
	})
	s.onClose(network.Close)
	registry.MustRegister(egressMetrics(network, record)...)
	w.site, w.network, w.trail = rules, network, record
	return w, nil
}

// egressMetrics read the network when they are asked for.
func egressMetrics(n *uplink.Network, t *trail.Trail) []prometheus.Collector {
	metric := func(kind prometheus.ValueType, name, help string, read func(egress.Stats) int64) prometheus.Collector {
		f := func() float64 { return float64(read(n.Stats())) }
		if kind == prometheus.GaugeValue {
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "dsec", Subsystem: "egress", Name: name, Help: help}, f)
		}
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "dsec", Subsystem: "egress", Name: name, Help: help}, f)
	}
	counter := prometheus.CounterValue
	return []prometheus.Collector{
		metric(prometheus.GaugeValue, "boxes", "Boxes with a way out.", func(s egress.Stats) int64 { return s.Boxes }),
		metric(prometheus.GaugeValue, "connections", "Connections and flows that are open.", func(s egress.Stats) int64 { return s.Open }),
		metric(counter, "allowed_total", "Decisions that allowed.", func(s egress.Stats) int64 { return s.Allowed }),
		metric(counter, "refused_total", "Decisions that refused.", func(s egress.Stats) int64 { return s.Refused }),
		metric(counter, "limited_total", "Refusals that a limit of the box caused.", func(s egress.Stats) int64 { return s.Limited }),
		metric(counter, "queries_total", "DNS queries of boxes.", func(s egress.Stats) int64 { return s.Queries }),
		metric(counter, "sent_bytes_total", "Bytes out of boxes.", func(s egress.Stats) int64 { return s.Sent }),
		metric(counter, "received_bytes_total", "Bytes into boxes.", func(s egress.Stats) int64 { return s.Received }),
		metric(counter, "records_total", "Decisions that were recorded.", func(s egress.Stats) int64 { return s.Records }),
		metric(counter, "records_suppressed_total", "Decisions that a box's limit of records left out.", func(s egress.Stats) int64 { return s.Suppressed }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "dsec", Subsystem: "egress", Name: "records_lost_total", Help: "Decisions that could not be written."},
			func() float64 { return float64(t.Lost()) }),
	}
}
