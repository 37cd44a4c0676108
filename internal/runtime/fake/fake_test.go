package fake_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
	"github.com/dsec-platform/dsec/internal/runtime/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	runtimetest.Run(t, func(_ *testing.T, dataDir string) (runtime.Runtime, runtime.Root) {
		return fake.New(filepath.Join(dataDir, "boxes")), runtime.Root{Template: "none@1"}
	})
}
