package uplink

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

func TestSmoke(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = c.Write([]byte("hello")) })
	b := w.attach(whitelist(t, []string{"good.test:7000"}))
	start := time.Now()
	a := b.must("good.test")
	t.Log("dns", time.Since(start))
	start = time.Now()
	c, err := b.dial("tcp4", a.String()+":7000")
	if err != nil {
		t.Fatal(err)
	}
	t.Log("connect", time.Since(start))
	buf := make([]byte, 10)
	n, err := c.Read(buf)
	if string(buf[:n]) != "hello" {
		t.Error(string(buf[:n]), err)
	}
	c.Close()
	start = time.Now()
	_, err = b.dial("tcp4", egresstest.EvilAddr+":7000")
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	t.Log("refused", time.Since(start))
	for _, d := range w.Sink.Take() {
		t.Logf("%+v", d)
	}
}
