package node

import (
	"context"
	"log/slog"
	"net"
	gort "runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/sched"
	"github.com/dsec-platform/dsec/internal/spec"
)

// Config of a node. DataDir and Runtimes must be set; the zero value of any
// other field means the default that its comment names.
type Config struct {
	// DataDir holds the journal. One node at a time may use it.
	DataDir string
	// Runtimes by name. The caller made them and closes them, after the node.
	Runtimes map[string]runtime.Runtime
	// DefaultRuntime serves requests that name none: "native", or the only one.
	DefaultRuntime string
	Logger         *slog.Logger // slog.Default()
	// Scheduler gives the overcommit ratios and the pool's bounds (per pool key).
	Scheduler spec.Scheduler
	// Memory and CPU that the ratios are applied to: the machine's, less ReserveMemory.
	Memory        int64
	CPU           float64
	ReserveMemory int64 // the larger of 512 MiB and a sixteenth of the machine
	// CreateConcurrency bounds boxes in the making: 2 × cores.
	CreateConcurrency int
	// RefillConcurrency bounds boxes in the making for the pool: the number of cores.
	RefillConcurrency int
	// Spares is the number of boxes that are begun ahead, for any create, where the default
	// runtime can do that: 4 × cores; negative: none.
	Spares int
	// PoolLimits are those of an idle pooled box: 8 MiB and 64 pids.
	PoolLimits runtime.Limits
	// PatrolInterval is the time between two patrols: 30 s.
	PatrolInterval time.Duration
	// GuestTimeout is how long a guest may be silent when it is connected to before
	// the box counts as tampered with: 30 s.
	GuestTimeout time.Duration
	// Hold keeps a template ("name@version") from being removed while a pool has boxes of it,
	// until release is called; nil: nobody removes templates.
	Hold func(ctx context.Context, template string) (release func(), err error)
	// Egress gives boxes their way out; nil: none has one. The caller closes it, after the node.
	Egress egress.Network
	// Proxied gives boxes an explicit proxy on their loopback in place of a device. Those that are adopted keep what they were
	// made with.
	Proxied bool
	// Metrics takes the node's metrics; nil for none.
	Metrics prometheus.Registerer
	// Connect speaks the guest protocol on a new connection, which it owns: guestclient.New.
	Connect func(ctx context.Context, conn net.Conn) (guestclient.API, error)

	bootID string               // of the running kernel; tests reboot by changing it
	boot   func() time.Duration // CLOCK_BOOTTIME; tests with virtual time replace it
}

// withDefaults fills what was not said and refuses what cannot be.
func (c Config) withDefaults() (Config, error) {
	if c.DataDir == "" {
		return c, errdefs.Userf(errdefs.InvalidArgument, "node", "set DataDir", "it has no data directory")
	}
	if len(c.Runtimes) == 0 {
		return c, errdefs.Userf(errdefs.InvalidArgument, "node", "configure at least one", "it has no runtime")
	}
	if c.Connect == nil {
		c.Connect = func(ctx context.Context, conn net.Conn) (guestclient.API, error) {
			g, err := guestclient.New(ctx, conn)
			if err != nil {
				return nil, err
			}
			return g, nil
		}
	}
	if c.DefaultRuntime == "" {
		c.DefaultRuntime = "native"
		if len(c.Runtimes) == 1 {
			for name := range c.Runtimes {
				c.DefaultRuntime = name
			}
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	cores := gort.NumCPU()
	setDefault(&c.CPU, float64(cores))
	setDefault(&c.CreateConcurrency, 2*cores)
	setDefault(&c.RefillConcurrency, cores)
	setDefault(&c.Spares, 4*cores)
	setDefault(&c.PatrolInterval, 30*time.Second)
	setDefault(&c.GuestTimeout, 30*time.Second)
	setDefault(&c.PoolLimits.Memory, 8<<20)
	setDefault(&c.PoolLimits.Pids, 64)
	if c.Memory == 0 {
		total, err := machineMemory()
		if err != nil {
			return c, err
		}
		setDefault(&c.ReserveMemory, max(512<<20, total/16))
		c.Memory = max(total-c.ReserveMemory, 0)
	}
	if c.bootID == "" {
		id, err := readBootID()
		if err != nil {
			return c, err
		}
		c.bootID = id
	}
	if c.boot == nil {
		c.boot = bootTime
	}
	return c, nil
}

func (c Config) poolConfig() sched.PoolConfig {
	p := c.Scheduler.SandboxPool
	return sched.PoolConfig{MinIdle: p.MinIdle, MaxIdle: p.MaxIdle, Step: p.IdleScaleUpStep, DeclaredPeak: p.DeclaredPeak}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
