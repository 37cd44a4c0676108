package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// Files measures a file's way up and down. Size is in bytes; each operation
// moves one file of that size.
func Files(ctx context.Context, o Options, size int64) ([]Result, error) {
	if err := o.Load.Validate(); err != nil {
		return nil, err
	}
	s, err := o.create(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Stop(context.WithoutCancel(ctx), "bench")
	var puts, gets []*pass
	for i := range o.Passes {
		o.say("pass %d/%d: files of %d bytes", i+1, o.Passes, size)
		puts = append(puts, o.Load.run(ctx, func(ctx context.Context, _ time.Time, i int) error {
			_, err := s.WriteFile(ctx, fmt.Sprintf("/workspace/bench-%d", i%64), io.LimitReader(zeros{}, size), dsec.WriteOptions{})
			return err
		}))
		gets = append(gets, o.Load.run(ctx, func(ctx context.Context, _ time.Time, i int) error {
			r, err := s.ReadFile(ctx, fmt.Sprintf("/workspace/bench-%d", i%min(64, o.Load.N)), dsec.ReadOptions{})
			if err != nil {
				return err
			}
			defer r.Close()
			n, err := io.Copy(io.Discard, r)
			if err == nil && n != size {
				err = fmt.Errorf("%d of %d bytes came back", n, size)
			}
			return err
		}))
	}
	base := Result{System: "dsec", Mode: o.mode(), Pattern: o.Load.Pattern, Concurrency: o.Load.Concurrency, Note: fmt.Sprintf("%d bytes a file", size)}
	put, get := base, base
	put.Op, get.Op = "file_put", "file_get"
	return []Result{reduce(put, puts), reduce(get, gets)}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// daemonRSS reads a process's resident set in KiB.
func daemonRSS(pid int) int64 {
	b, err := readProc(pid, "status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(b) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib int64
			fmt.Sscan(rest, &kib)
			return kib
		}
	}
	return 0
}

// BigFile moves one file of size bytes up and down and reports the growth of
// the daemon's resident memory, sampled every 50 ms.
func BigFile(ctx context.Context, o Options, pid int, size int64) (Result, error) {
	s, err := o.create(ctx)
	if err != nil {
		return Result{}, err
	}
	defer s.Stop(context.WithoutCancel(ctx), "bench")
	before := daemonRSS(pid)
	peak := before
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				peak = max(peak, daemonRSS(pid))
			}
		}
	}()
	start := time.Now()
	_, err = s.WriteFile(ctx, "/workspace/big", io.LimitReader(zeros{}, size), dsec.WriteOptions{})
	up := time.Since(start)
	var down time.Duration
	if err == nil {
		var r io.ReadCloser
		start = time.Now()
		if r, err = s.ReadFile(ctx, "/workspace/big", dsec.ReadOptions{}); err == nil {
			var n int64
			n, err = io.Copy(io.Discard, r)
			r.Close()
			if err == nil && n != size {
				err = fmt.Errorf("%d of %d bytes came back", n, size)
			}
		}
		down = time.Since(start)
	}
	close(stop)
	<-done
	mib := float64(size) / (1 << 20)
	return Result{System: "dsec", Op: "big_file", Mode: o.mode(), Pattern: "sequential", Concurrency: 1, N: 1, Passes: 1,
		Wall: (up + down).Seconds(),
		Note: fmt.Sprintf("%.0f MiB: up %.0f MiB/s, down %.0f MiB/s, daemon memory grew by %.1f MiB", mib, mib/up.Seconds(), mib/down.Seconds(), float64(peak-before)/1024)}, err
}
