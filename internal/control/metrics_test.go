package control_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dsec-platform/dsec/internal/spec"
)

func TestCollector(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	w.one()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(w.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{"dsec_sessions_created_total": 1, "dsec_session_placements_total cold": 1, "dsec_sessions_live RUNNING": 1, "dsec_sessions_live PENDING": 0, "dsec_sessions_ended_total completed": 0} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
}
