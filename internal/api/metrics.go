package api

import (
	"time"

	"connectrpc.com/connect/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// codeOK stands for success among the codes of the metrics.
const codeOK connect.Code = 0

// metrics of the gateway. Labels are the call and its outcome, never an id.
type metrics struct {
	seconds *prometheus.HistogramVec
	running *prometheus.GaugeVec
	panics  prometheus.Counter
	execs   *prometheus.CounterVec // answered by Run and Start
	calls   map[string]*call       // written by New alone
	other   *call
}

// call holds one call's series, found once and not for every request.
type call struct {
	running prometheus.Gauge
	codes   [connect.CodeUnauthenticated + 1]prometheus.Observer
}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dsec_request_seconds", Help: "Time to answer a request, by call and outcome.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300},
		}, []string{"call", "code"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dsec_requests_running", Help: "Requests being answered, by call.",
		}, []string{"call"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dsec_panics_total", Help: "Handlers that panicked.",
		}),
		execs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dsec_execs_total", Help: "Commands whose end was told, by how they ended: ok, exit, signal, timeout, oom, or the reason why they did not run.",
		}, []string{"outcome"}),
		calls: map[string]*call{},
	}
	reg.MustRegister(m.seconds, m.running, m.panics, m.execs)
	m.other = m.series("other")
	return m
}

func (m *metrics) add(name string) { m.calls[name] = m.series(name) }

func (m *metrics) series(name string) *call {
	c := &call{running: m.running.WithLabelValues(name)}
	for code := range c.codes {
		label := "ok"
		if connect.Code(code) != codeOK {
			label = connect.Code(code).String()
		}
		c.codes[code] = lazyObserver{m.seconds, name, label}
	}
	c.codes[codeOK] = m.seconds.WithLabelValues(name, "ok")
	return c
}

// lazyObserver makes a failure's series when it first happens.
type lazyObserver struct {
	vec        *prometheus.HistogramVec
	name, code string
}

func (l lazyObserver) Observe(v float64) { l.vec.WithLabelValues(l.name, l.code).Observe(v) }

func (m *metrics) of(name string) *call {
	if c := m.calls[name]; c != nil {
		return c
	}
	return m.other
}

func (c *call) done(code connect.Code, start time.Time) {
	if int(code) < len(c.codes) {
		c.codes[code].Observe(time.Since(start).Seconds())
	}
}

// exec counts a command by its end.
func (m *metrics) exec(r *guestproto.Result, err error) {
	m.execs.WithLabelValues(outcome(r, err)).Inc()
}

func outcome(r *guestproto.Result, err error) string {
	switch {
	case err != nil:
		return string(errdefs.From(err).Reason)
	case r.Error != nil:
		return string(guestError(r.Error).Reason)
	case r.TimedOut:
		return "timeout"
	case r.OOM:
		return "oom"
	case r.Signal != "":
		return "signal"
	case r.ExitCode != 0:
		return "exit"
	}
	return "ok"
}
