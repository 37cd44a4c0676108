package server

import (
	"log/slog"
	"os"
	"strconv"
)

// timerSlack is how late the kernel may end a sleep of this process. The Go runtime's monitor sleeps for
// 20 µs at a time while anything runs, and takes a processor from it at each end: with the kernel's own slack of
// 50 µs that is a tenth of a create's time on two cores. The spawner and the guests inherit it; what a
// guest starts gets the kernel's own back.
const timerSlack = 300_000 // ns

// relaxTimers gives the slack to all threads there are; later ones inherit it. Where the kernel
// does not allow it things are as they were.
func relaxTimers(log *slog.Logger) {
	threads, err := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if e := os.WriteFile("/proc/"+t.Name()+"/timerslack_ns", []byte(strconv.Itoa(timerSlack)), 0); e != nil {
			err = e
		}
	}
	if err != nil {
		log.Debug("the slack of timers stays", "err", err)
	}
}
