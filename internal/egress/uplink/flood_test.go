package uplink

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

const floodVariable = "DSEC_UPLINK_FLOOD"

// floodCommand starts this program in a box, to send datagrams as fast as it can.
func floodCommand(b testing.TB, box *testBox) *exec.Cmd {
	b.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestFlooder$")
	cmd.Env = append(os.Environ(), floodVariable+"=1")
	if err := box.Do(cmd.Start); err != nil {
		b.Fatal(err)
	}
	return cmd
}

// TestFlooder is the other process of BenchmarkFlood.
func TestFlooder(t *testing.T) {
	if os.Getenv(floodVariable) == "" {
		t.Skip("runs as the flood of BenchmarkFlood")
	}
	c, err := net.Dial("udp4", egresstest.EvilAddr+":9")
	if err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 100); ; {
		_, _ = c.Write(buf)
	}
}
