package guest

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestOutputProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &budget{left: int64(rapid.IntRange(0, 20000).Draw(t, "budget"))}
		start := b.left
		half := rapid.IntRange(1, 9000).Draw(t, "half")
		o := &output{budget: b, half: half}
		var all []byte
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 7000), 0, 12).Draw(t, "writes") {
			p := make([]byte, n)
			for j := range p {
				p[j] = byte(i*31 + j)
			}
			all = append(all, p...)
			o.write(p)
		}
		if o.total != int64(len(all)) {
			t.Fatalf("total %d, want %d", o.total, len(all))
		}
		head, tail := o.parts()
		dropped := o.total - int64(len(head)+len(tail))
		if dropped < 0 || !bytes.HasPrefix(all, head) || !bytes.HasSuffix(all, tail) {
			t.Fatalf("head %d tail %d of %d do not fit", len(head), len(tail), len(all))
		}
		if len(all) <= 2*half && start >= 2*int64(2*half+minTail) && dropped != 0 {
			t.Fatalf("%d bytes dropped of %d with room for %d", dropped, len(all), 2*half)
		}
		if len(o.head) > half || len(o.tail) > half {
			t.Fatalf("head %d or tail %d over %d", len(o.head), len(o.tail), half)
		}
		// A reader from any offset gets every kept byte once, and gaps that add up.
		off := rapid.Int64Range(0, o.total).Draw(t, "offset")
		buf := make([]byte, rapid.IntRange(1, 5000).Draw(t, "chunk"))
		for off < o.total {
			n, gap := o.read(off, buf)
			off += gap
			if n == 0 || !bytes.Equal(buf[:n], all[off:off+int64(n)]) {
				t.Fatalf("read %d bytes at %d (gap %d)", n, off, gap)
			}
			off += int64(n)
		}
		o.free()
		o.write([]byte("late"))
		if b.left != start {
			t.Fatalf("budget %d, want %d", b.left, start)
		}
	})
}
