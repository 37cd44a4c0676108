package uplink

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

// A box that begins many downloads and takes nothing more of them makes the node keep little for each.
func TestStalledDownloadsKeepLittle(t *testing.T) {
	const conns, taken = 128, 9 << 19 // past what shows that a connection moves bytes
	w := newWorld(t)
	w.Handle(egresstest.GoodAddr+":9000", func(c net.Conn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	b := w.attach(whitelist(t, nil, egresstest.GoodAddr+":9000/tcp"))
	kept := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := kept()
	open := make([]net.Conn, conns)
	for i := range open {
		c, err := b.dial("tcp4", egresstest.GoodAddr+":9000")
		if err != nil {
			t.Fatal(err)
		}
		open[i] = c
		defer c.Close()
	}
	turns := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for _, c := range open {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if _, err := io.CopyN(io.Discard, c, taken); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	more := kept() - before
	t.Logf("%d KiB for each of %d", more/conns>>10, conns)
	// The first of a box may keep much, what comes upon a crowd may not; the servers' buffers are in this process too.
	if most := int64(64*(512+1024)<<10 + (conns-64)*128<<10 + conns*(256<<10)); more > most {
		t.Errorf("%d MiB are kept for %d stalled connections, at most %d are due", more>>20, conns, most>>20)
	}
}
