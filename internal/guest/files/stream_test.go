package files

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// TestLargeStreams moves a file that is much larger than the memory it may take.
func TestLargeStreams(t *testing.T) {
	size := int64(2 << 30)
	if testing.Short() || raceEnabled {
		size = 128 << 20
	}
	c, dir := start(t), t.TempDir()
	path := filepath.Join(dir, "large")
	before := resident(t)
	s := c.open(guestproto.KindFileWrite, guestproto.FileRequest{Path: path, User: self(), Size: size}, false)
	buf := make([]byte, 1<<20)
	for sent := int64(0); sent < size; sent += int64(len(buf)) {
		if _, err := s.Write(buf); err != nil {
			t.Skipf("the disk does not take %d bytes: %v", size, err)
		}
	}
	must(t, s.CloseSend())
	must(t, s.RecvMessage(&guestproto.FileInfo{}))
	s = c.open(guestproto.KindFileRead, guestproto.FileRequest{Path: path, User: self(), Length: -1}, true)
	must(t, s.RecvMessage(&guestproto.FileInfo{}))
	if n, err := io.Copy(io.Discard, s); err != nil || n != size {
		t.Errorf("%d bytes, %v", n, err)
	}
	if grown := resident(t) - before; grown > 16<<10 && !raceEnabled {
		t.Errorf("resident memory grew by %d KiB", grown)
	}
}

// resident is this process's memory in KiB.
func resident(t *testing.T) (kib int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	_, err = fmt.Sscan(rest, &kib)
	must(t, err)
	return kib
}
