package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// cgroup makes a group in cgroup2, clones a process into it by descriptor, kills
// it with cgroup.kill, and sets each limit in the hierarchy that has it.
func (p *prober) cgroup(ctx context.Context) (string, error) {
	h := (&report{h: Host{FS: os.DirFS("/")}}).hierarchy()
	if h.unified == "" {
		return "", fmt.Errorf("cgroup2 is not mounted")
	}
	name := fmt.Sprintf("dsec-doctor-%d", os.Getpid())
	dir := filepath.Join(h.unified, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("a group cannot be made: %w", err)
	}
	defer os.Remove(dir)
	if _, err := os.Stat(filepath.Join(dir, "cgroup.freeze")); err != nil {
		return "", fmt.Errorf("no cgroup.freeze: %w", err)
	}
	if err := killGroup(ctx, dir); err != nil {
		return "", err
	}
	how := []string{"clone into a group, cgroup.kill, cgroup.freeze"}
	for _, c := range controllers {
		at, v1 := h.v1[c]
		if !v1 {
			continue
		}
		if err := limitV1(at, name, c); err != nil {
			return "", err
		}
		how = append(how, c+" limit (v1)")
	}
	return strings.Join(how, ", "), nil
}

func killGroup(ctx context.Context, dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s, err := sleep(ctx, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd})
	if err != nil {
		return fmt.Errorf("a process cannot be cloned into a group: %w", err)
	}
	killErr := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	_ = s.end() // it was killed: that is the point
	if killErr != nil {
		return fmt.Errorf("cgroup.kill: %w", killErr)
	}
	return nil
}

func limitV1(at, name, controller string) error {
	file := map[string][2]string{
		"memory": {"memory.limit_in_bytes", "16777216"},
		"pids":   {"pids.max", "64"},
		"cpu":    {"cpu.cfs_quota_us", "100000"},
	}[controller]
	dir := filepath.Join(at, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("%s: a group cannot be made: %w", at, err)
	}
	defer os.Remove(dir)
	if err := os.WriteFile(filepath.Join(dir, file[0]), []byte(file[1]), 0); err != nil {
		return fmt.Errorf("%s cannot be limited: %w", controller, err)
	}
	return nil
}
