package guest

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A command may end while its input is being written: that ends the feeder, and nothing else.
func TestInputEndsDuringAWrite(t *testing.T) {
	for name, tty := range map[string]bool{"pipe": false, "terminal": true} {
		t.Run(name, func(t *testing.T) {
			theirs, ours, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			defer ours.Close()
			in := newStdin(ours, tty)
			in.queue = make([]byte, maxQueue)
			if _, err := ours.Write(make([]byte, 4096)); err != nil { // the rest of the pipe takes a part of it
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() { in.run(); close(done) }()
			for n := 0; n < 64<<10; time.Sleep(time.Millisecond) {
				if n, err = unix.IoctlGetInt(int(theirs.Fd()), unix.TIOCINQ); err != nil {
					t.Fatal(err)
				}
			}
			in.close()
			go func() { _, _ = io.CopyN(io.Discard, theirs, 8192) }()
			<-done
		})
	}
}
