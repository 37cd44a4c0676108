package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/launch"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func readProc(pid int, file string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	return string(b), err
}

// Density makes n idle boxes, measures the machine's memory per box, lets every
// one answer; with kill it then kills daemon and spawner with -9, starts the daemon
// again and counts what was adopted and which running ops were kept.
func Density(ctx context.Context, o Options, d *launch.Daemon, ownCgroup string, kill bool) (Result, error) {
	n := o.Load.N
	r := Result{System: "dsec", Op: "density", Mode: o.mode(), Pattern: "burst", Concurrency: 8, N: n, Passes: 1}
	// One box and one exec first, so that what is loaded once is not counted.
	warm, err := o.create(ctx)
	if err != nil {
		return r, err
	}
	if err := run1(ctx, warm); err != nil {
		return r, err
	}
	if err := warm.Stop(ctx, "bench"); err != nil {
		return r, err
	}
	before, err := o.settledMemory(ctx)
	if err != nil {
		return r, err
	}
	o.say("making %d boxes", n)
	boxes := make([]*dsec.Session, n)
	load := Load{Pattern: "staggered", N: n, Concurrency: 8}
	made := load.run(ctx, func(ctx context.Context, _ time.Time, i int) error {
		s, err := o.create(ctx)
		boxes[i] = s
		return err
	})
	r = reduce(r, []*pass{made})
	r.N = n
	live := n - made.failures
	r.Live = &live
	after, err := o.settledMemory(ctx)
	if err != nil {
		return r, err
	}
	each := func(after int64) *float64 {
		mib := float64(before-after) / 1024 / float64(max(1, live))
		return &mib
	}
	r.MiBPerBox = each(after)
	defer func() {
		o.say("stopping")
		_, _ = o.Client.Stop(context.WithoutCancel(ctx), dsec.ByLabels(map[string]string{"dsec-bench": "1"}), "bench")
		left := len(launch.Leftovers(d.DataDir(), ownCgroup))
		*r.Left = left
	}()
	r.Left = new(int)
	answers := answer(ctx, boxes, 1)
	answered := len(answers.lat)
	slices.Sort(answers.lat)
	p50, p99 := quantile(answers.lat, 0.50), quantile(answers.lat, 0.99)
	r.Answered, r.WakeP50, r.WakeP99 = &answered, &p50, &p99
	if after, err = o.settledMemory(ctx); err != nil {
		return r, err
	}
	r.MiBPerUsed = each(after)
	if !kill {
		return r, nil
	}
	// A running op in every tenth box must survive.
	type running struct {
		s  *dsec.Session
		op string
	}
	var ops []running
	for i := 0; i < n; i += 10 {
		if boxes[i] == nil {
			continue
		}
		p, err := boxes[i].Start(ctx, dsec.Command{Argv: []string{"sleep", "600"}})
		if err != nil {
			return r, err
		}
		ops = append(ops, running{boxes[i], p.OpID()})
		p.Close()
	}
	o.say("kill -9 of daemon and spawner, restart")
	for pid, name := range launch.Processes(d.DataDir()) {
		if name == "dsec-spawner" {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}
	d.Kill()
	start := time.Now()
	if err := d.Restart(ctx); err != nil {
		return r, err
	}
	stats, err := o.Client.Nodes.GetStats(ctx, &dsecv1.GetStatsRequest{})
	if err != nil {
		return r, dsec.AsError(err)
	}
	took := time.Since(start).Seconds()
	adopted := int(stats.GetBoxes())
	r.Adopted, r.AdoptS = &adopted, &took
	kept := 0
	for _, op := range ops {
		if info, err := op.s.Op(ctx, op.op, false); err == nil && info.GetRunning() {
			kept++
			_ = op.s.Signal(ctx, op.op, "SIGKILL", true)
		}
	}
	r.OpsKept = &kept
	again := answer(ctx, boxes, 8)
	r.Note = fmt.Sprintf("after the restart %d answered; %d ops ran when it was killed", len(again.lat), len(ops))
	return r, nil
}

// answer runs an exec in every box.
func answer(ctx context.Context, boxes []*dsec.Session, concurrency int) *pass {
	boxes = slices.DeleteFunc(slices.Clone(boxes), func(s *dsec.Session) bool { return s == nil })
	return Load{Pattern: "staggered", N: len(boxes), Concurrency: concurrency}.run(ctx, func(ctx context.Context, _ time.Time, i int) error {
		return run1(ctx, boxes[i])
	})
}

// How long memory has to stand still to count as settled, within how much (KiB), and how long it is waited for:
// what processes and cgroups left is freed by kernel workers, in spells with seconds between.
const (
	settleLook   = 500 * time.Millisecond
	settleCalm   = 16 // looks
	settleWithin = 1024
	settleMost   = 120 // looks
)

// settledMemory gives MemAvailable, in KiB, when it has stopped moving.
func (o *Options) settledMemory(ctx context.Context) (int64, error) {
	o.say("waiting for the machine's memory to stand still")
	then, err := meminfo("MemAvailable")
	for look, calm := 0, 0; err == nil && look < settleMost && calm < settleCalm; look++ {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(settleLook):
		}
		var now int64
		now, err = meminfo("MemAvailable")
		if diff := now - then; diff < settleWithin && diff > -settleWithin {
			calm++
		} else {
			then, calm = now, 0
		}
	}
	return then, err
}
