package native

import "testing"

func TestSlotIsFreedByItsOwner(t *testing.T) {
	s := newSlots("x")
	a, err := s.take("a")
	if err != nil {
		t.Fatal(err)
	}
	s.free(a, "b") // not its owner
	if s.reserve(a, "b") {
		t.Error("a slot has two owners")
	}
	s.freeAll("a")
	if !s.reserve(a, "b") {
		t.Error("the slot of a box that is gone stays taken")
	}
	if slotOf(slotBase(a)) != a || slotOf(slotBase(a)+1) != -1 {
		t.Error("slotOf is not the inverse of slotBase")
	}
}
