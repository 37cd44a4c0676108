package uplink

import (
	"net"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// A box that floods is answered as often as its limit says, neither more nor, because its packets are read in bursts, much
// less. (What it is allowed waits in the same queue: a box that floods harms itself.)
func TestFloodIsHeldToItsLimit(t *testing.T) {
	w := newWorld(t)
	const limit = 500
	box := w.attach(compile(t, policy.Spec{
		Mode: policy.Whitelist, IPs: []policy.Range{{CIDR: egresstest.GoodAddr}}, Limits: policy.Limits{RefusalsPerSecond: limit},
	}))
	var c net.Conn
	if err := box.Do(func() (err error) { c, err = net.Dial("udp4", egresstest.EvilAddr+":9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = c.Write([]byte("flood"))
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	time.Sleep(500 * time.Millisecond) // the burst is spent
	before, began := box.Stats().Refused, time.Now()
	time.Sleep(2 * time.Second)
	got, took := float64(box.Stats().Refused-before), time.Since(began).Seconds()
	if got > limit*(took+0.2) || got < limit*took/3 {
		t.Errorf("%.0f refusals in %.1f s, the limit is %d a second", got, took, limit)
	}
}
