package spec

import (
	"strings"
	"testing"
)

// A disk that no file of the host can be is refused before anything is made for it.
func TestWritableSizeIsBounded(t *testing.T) {
	for size, ok := range map[Bytes]bool{MaxWritable: true, MaxWritable + 1: false, 60 * TiB: false} {
		s := Default()
		s.FS.WritableSizeLimit = size
		if _, err := Check(&s); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "fs.writable_size_limit") {
			t.Errorf("%d: %v", size, err)
		}
	}
}
