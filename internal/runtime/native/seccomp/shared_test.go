package seccomp

import "testing"

// What is one for the whole machine is not a box's to use up or to stall.
func TestCallsOnWhatTheMachineShares(t *testing.T) {
	table := tables()["amd64"]
	for _, profile := range Profiles() {
		calls, err := profileCalls(profile)
		if err != nil {
			t.Fatal(err)
		}
		d := decide(table, profile, calls)
		for name, want := range map[string]uint32{"sync": actErrno, "syncfs": actErrno, "io_setup": actEPERM, "fsync": actAllow} {
			if got := d[table.numbers[name]]; len(got.clauses) > 0 || got.action != want {
				t.Errorf("%s: %s is answered with %#x", profile, name, got.action)
			}
		}
	}
	if err := Lint("default", []string{"io_setup", "io_submit"}); err != nil {
		t.Errorf("native AIO cannot be granted: %v", err)
	}
}
