package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// reapTime is how long an init may take to reap.
const reapTime = 2 * time.Second

// reaper leaves an orphan that has ended to the machine's init, or to whoever stands for it here, and
// looks whether it goes. What is not reaped fills the table of processes, and a pids limit before
// that: processes of a daemon or a spawner that was killed stay for ever.
func (p *prober) reaper(ctx context.Context) (string, error) {
	// The shell's child ends by itself, and is an orphan when the shell has ended.
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", ": >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		return "", fmt.Errorf("no orphan can be made: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return "", fmt.Errorf("no orphan can be made: the shell said %q", out)
	}
	return awaitReaped(ctx, pid, reapTime)
}

// awaitReaped waits until a process that has ended, or is about to, is gone.
func awaitReaped(ctx context.Context, pid int, limit time.Duration) (string, error) {
	for end := time.Now().Add(limit); ; {
		state, parent, err := processState(pid)
		if errors.Is(err, os.ErrNotExist) {
			return "orphans are reaped", nil
		}
		if err != nil {
			return "", err
		}
		if time.Now().After(end) {
			if state != "Z" {
				return "", fmt.Errorf("process %d does not end", pid)
			}
			return "", fmt.Errorf("process %d (%s) does not reap: an orphan is still a zombie after %v", parent, commandName(parent), limit)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// processState gives a process's state letter and its parent.
func processState(pid int) (state string, parent int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 2 {
		return "", 0, fmt.Errorf("the state of process %d cannot be read", pid)
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err
}

func commandName(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
