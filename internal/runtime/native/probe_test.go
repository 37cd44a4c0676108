package native

import (
	"os"
	"testing"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/store"
)

// TestProbeFindsWhatTheMachineHas: the environment says how a machine was set
// up (DSEC_TEST_EXPECT_CGROUP, _MOUNTS). A probe that finds less must fail a
// test there: everything else would skip, or run the way of another machine.
func TestProbeFindsWhatTheMachineHas(t *testing.T) {
	m := newMachine(t)
	p := m.Probe(ctx(t))
	for feature, variable := range map[string]string{"cgroup": "DSEC_TEST_EXPECT_CGROUP", "mounts": "DSEC_TEST_EXPECT_MOUNTS"} {
		want := os.Getenv(variable)
		if want != "" && p.Features[feature] != want {
			t.Errorf("%s is %q, and the machine was set up for %q", feature, p.Features[feature], want)
		}
	}
	for _, f := range runtime.Features {
		if !p.Has(f) {
			t.Errorf("no box made here has %s: %s", f, p.Features[f])
		}
	}
	if disk := p.Features["store-disk"]; disk != string(store.Loop) && disk != string(store.Quota) {
		t.Errorf("stores on disk: %q", disk)
	}
}
