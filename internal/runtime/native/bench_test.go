package native

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
)

func benchRuntime(b *testing.B) (*Runtime, runtime.Config) {
	if why := cannotRun(); why != "" {
		b.Skip(why)
	}
	r, err := New(Options{DataDir: dataDir(b), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	return r, runtime.Config{
		Root: busyboxRoot(b),
		Claim: runtime.Claim{
			Limits: runtime.Limits{Memory: 512 << 20, Pids: 256, CPU: 2}, WritableDirs: []string{"/workspace", "/home/user"},
			StoreSize: 256 << 20, TmpSize: 64 << 20, Hostname: "box", User: "user",
		},
	}
}

// BenchmarkCreateDestroy makes and removes a box with the production defaults:
// read-only root of two directory layers, two writable directories on tmpfs.
// create-ms is the time to the guest's answer, destroy-ms that to the proof.
func BenchmarkCreateDestroy(b *testing.B) {
	r, cfg := benchRuntime(b)
	var create, destroy time.Duration
	cfg.ID = "bench"
	for b.Loop() {
		start := time.Now()
		box, err := r.Create(context.Background(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		made := time.Now()
		if err := box.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
		create += made.Sub(start)
		destroy += time.Since(made)
	}
	b.ReportMetric(float64(create.Microseconds())/1000/float64(b.N), "create-ms")
	b.ReportMetric(float64(destroy.Microseconds())/1000/float64(b.N), "destroy-ms")
}

// BenchmarkCreateDestroyParallel does so from several creators at once.
func BenchmarkCreateDestroyParallel(b *testing.B) {
	r, cfg := benchRuntime(b)
	var seq atomic.Int64
	b.SetParallelism(2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c := cfg
			c.ID = fmt.Sprintf("bench-%d", seq.Add(1))
			box, err := r.Create(context.Background(), c)
			if err != nil {
				b.Error(err)
				return
			}
			if err := box.Destroy(context.Background()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkClaim turns pooled boxes into what sessions ask for.
func BenchmarkClaim(b *testing.B) {
	r, cfg := benchRuntime(b)
	claim := cfg.Claim
	claim.Env, claim.Limits.CPU, claim.Limits.Memory = []string{"A=1"}, 1, 256<<20
	claim.StoreSize = 128 << 20
	cfg.ID, cfg.Pooled = "bench", true
	var took time.Duration
	for b.Loop() {
		box, err := r.Create(context.Background(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := box.Claim(context.Background(), claim); err != nil {
			b.Fatal(err)
		}
		took += time.Since(start)
		if err := box.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "claim-ms")
}
