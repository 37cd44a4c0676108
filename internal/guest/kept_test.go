package guest

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// What can be read of an output is the same in the next life, wherever it begins.
func TestOutputOutlivesTheGuest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := output{budget: &budget{left: outputBudget}, half: rapid.IntRange(1, 9000).Draw(t, "half")}
		for range rapid.IntRange(0, 6).Draw(t, "writes") {
			before.write(rapid.SliceOfN(rapid.Byte(), 1, 5000).Draw(t, "bytes"))
		}
		room := &budget{left: outputBudget}
		after := output{budget: room, headDone: true}
		if err := guestproto.Unmarshal(guestproto.Marshal(nil, &keptOutput{&before}), &keptOutput{&after}); err != nil {
			t.Fatal(err)
		}
		if before.total != after.total || before.kept() != after.kept() {
			t.Fatalf("%d bytes, %d of them kept; then %d and %d", before.total, before.kept(), after.total, after.kept())
		}
		for _, at := range []int64{0, before.total / 3, int64(len(before.head)), before.tailStart(), rapid.Int64Range(0, before.total).Draw(t, "at")} {
			var a, b [20000]byte
			n, gap := before.read(at, a[:])
			m, hole := after.read(at, b[:])
			if n != m || gap != hole || !bytes.Equal(a[:n], b[:m]) {
				t.Fatalf("at %d: %d bytes after a gap of %d, then %d and %d", at, n, gap, m, hole)
			}
		}
		h1, t1 := before.parts()
		h2, t2 := after.parts()
		if !bytes.Equal(h1, h2) || !bytes.Equal(t1, t2) {
			t.Fatal("other parts")
		}
		after.free()
		if room.left != outputBudget {
			t.Fatalf("%d bytes of the budget are lost", outputBudget-room.left)
		}
	})
}
