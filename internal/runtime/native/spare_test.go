package native

import "testing"

// The guest of a spare may end at any moment of its becoming a box: the box is then made anew.
func TestSpareEndsWhileItBecomesABox(t *testing.T) {
	m := newMachine(t)
	cfg := m.config()
	if err := m.Prepare(ctx(t), cfg.ID); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.boxes[cfg.ID].pid = 1 << 30 // its process is gone, and nobody has been told yet
	m.mu.Unlock()
	b, err := m.Create(ctx(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := out(t, guestOf(t, b), "user", "echo made"); got != "made" {
		t.Errorf("the box says %q", got)
	}
	if err := b.Destroy(ctx(t)); err != nil {
		t.Error(err)
	}
}
