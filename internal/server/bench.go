package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/bench"
	"github.com/dsec-platform/dsec/internal/cli"
	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/specwire"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const benchLong = `Measure this machine through the API, beside peers in the same run.

Without --url (or DSEC_URL) it starts a server of its own on the data directory and stops it
afterwards. Passes of dsec and the peers alternate; figures are medians over the passes. What each
operation includes is printed with the report; CPU is the whole machine's.`

// benchRun is what the flags of a bench say.
type benchRun struct {
	env      *cli.Env
	o        bench.Options
	template string
	specFile string
	mem      string
	mode     string
	rootfs   string
	upArgs   []string
	daemon   *launch.Daemon
	over     spec.Sandbox // of the flags
	resolved spec.Sandbox // with the template's and the production defaults
}

func newBench(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure creates, execs, files and density", Long: benchLong}
	b := &benchRun{env: env}
	f := cmd.PersistentFlags()
	f.StringVar(&b.template, "template", "", "template of the boxes (default base)")
	f.StringVar(&b.specFile, "spec", "", "spec file over the production defaults")
	f.StringVar(&b.mem, "mem", "", "mem_limit of the boxes, such as 16Mi")
	f.StringVar(&b.mode, "mode", "cold", "cold or pooled")
	f.StringVar(&b.o.Load.Pattern, "pattern", "sequential", "sequential, staggered, burst or open-loop")
	f.IntVar(&b.o.Load.N, "n", 1000, "operations a pass")
	f.IntVar(&b.o.Load.Concurrency, "concurrency", 0, "operations in flight (staggered: 4, burst: all)")
	f.Float64Var(&b.o.Load.Rate, "rate", 0, "operations a second of an open loop")
	f.IntVar(&b.o.Passes, "passes", 5, "passes, of which the median is reported")
	f.StringSliceVar(&b.o.Peers, "peer", nil, "systems to measure beside: bwrap, crun, runc, runsc, docker, bare")
	f.StringVar(&b.rootfs, "rootfs", "", "directory with the root file system that peers run on (default /)")
	f.StringArrayVar(&b.upArgs, "up-arg", nil, "argument for the server that is started, such as --config=FILE")

	cmd.AddCommand(&cobra.Command{
		Use: "create", Short: "Create, create to first result, destroy", Args: cli.NoArgs,
		Example: "  dsec bench create --peer bwrap,crun\n  dsec bench create --mode pooled --pattern open-loop --rate 100\n  dsec bench create --pattern burst --n 1000 --mem 16Mi --passes 3 -o json",
		RunE:    b.with(func(ctx context.Context) ([]bench.Result, map[string]string, error) { return bench.Create(ctx, b.o) }),
	}, &cobra.Command{
		Use: "exec", Short: "Exec of `true` in a live box", Args: cli.NoArgs,
		Example: "  dsec bench exec\n  dsec bench exec --concurrency 4 --n 2000",
		RunE: b.with(func(ctx context.Context) ([]bench.Result, map[string]string, error) {
			r, err := bench.Exec(ctx, b.o)
			return r, nil, err
		}),
	}, b.filesCommand(), b.densityCommand())
	return cmd
}

func (b *benchRun) filesCommand() *cobra.Command {
	var size spec.Bytes = 64 << 10
	var big spec.Bytes
	cmd := &cobra.Command{
		Use: "files", Short: "A file's way up and down", Args: cli.NoArgs,
		Example: "  dsec bench files --size 64Ki\n  dsec bench files --big 2Gi --spec big.yaml",
		RunE: b.with(func(ctx context.Context) ([]bench.Result, map[string]string, error) {
			if big > 0 {
				if b.daemon == nil {
					return nil, nil, errors.New("--big watches the memory of a server that bench starts itself: leave out --url")
				}
				r, err := bench.BigFile(ctx, b.o, b.daemon.Pid(), int64(big))
				return []bench.Result{r}, nil, err
			}
			r, err := bench.Files(ctx, b.o, int64(size))
			return r, nil, err
		}),
	}
	cmd.Flags().Var(&size, "size", "bytes a file")
	cmd.Flags().Var(&big, "big", "move one file of this size and watch the server's memory")
	return cmd
}

func (b *benchRun) densityCommand() *cobra.Command {
	var kill bool
	cmd := &cobra.Command{
		Use: "density", Short: "Memory per idle box; adoption after kill -9", Args: cli.NoArgs,
		Example: "  dsec bench density --n 2000 --mem 8Mi --kill-daemon",
		RunE: b.with(func(ctx context.Context) ([]bench.Result, map[string]string, error) {
			if b.daemon == nil {
				return nil, nil, errors.New("density looks at the machine of a server that bench starts itself: leave out --url")
			}
			r, err := bench.Density(ctx, b.o, b.daemon, native.CgroupName(b.daemon.DataDir()), kill)
			return []bench.Result{r}, nil, err
		}),
	}
	cmd.Flags().BoolVar(&kill, "kill-daemon", false, "then kill -9 daemon and spawner, restart, and count what was adopted")
	return cmd
}

// with prepares a client (and a server, if none is named), runs a bench and prints its report.
func (b *benchRun) with(run func(context.Context) ([]bench.Result, map[string]string, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) (err error) {
		ctx := cmd.Context()
		if err := b.prepare(); err != nil {
			return err
		}
		defer func() {
			if b.daemon == nil {
				return
			}
			err = errors.Join(err, b.daemon.Stop())
			if _, e := Down(context.WithoutCancel(ctx), b.daemon.DataDir()); e != nil {
				err = errors.Join(err, e)
			}
		}()
		if err := b.connect(ctx); err != nil {
			return err
		}
		if err := b.resolve(ctx); err != nil {
			return err
		}
		digest := sha256.Sum256(must(json.Marshal(b.resolved)))
		head, err := bench.Describe(ctx, b.o.Client, b.template, "sha256:"+hex.EncodeToString(digest[:]), nil)
		if err != nil {
			return err
		}
		results, peers, err := run(ctx)
		if err != nil {
			return err
		}
		head.Peers = peers
		return bench.Write(b.env.Out, b.env.JSON(), head, results)
	}
}

func (b *benchRun) prepare() error {
	var over spec.Sandbox
	if b.specFile != "" {
		text, err := os.ReadFile(b.specFile)
		if err != nil {
			return err
		}
		doc, err := spec.Parse(b.specFile, text)
		if err != nil {
			return err
		}
		if doc.Sandbox != nil {
			over = *doc.Sandbox
		}
	}
	if b.mem != "" {
		n, err := spec.ParseBytes(b.mem)
		if err != nil {
			return err
		}
		over.MemLimit = n
	}
	switch b.mode {
	case "cold", "pooled":
		b.o.Pooled = b.mode == "pooled"
	default:
		return fmt.Errorf("--mode %s: use cold or pooled", b.mode)
	}
	b.over = over
	b.o.SpecYAML = string(must(json.Marshal(over))) // JSON is YAML
	b.o.Template = b.template
	if b.template == "" {
		b.template = "base"
	}
	b.o.RootFS = b.rootfs
	if b.o.RootFS == "" {
		b.o.RootFS = "/"
	}
	b.o.Bare = func() (bench.Bare, error) {
		if b.daemon == nil {
			return nil, errors.New("needs a server that bench starts itself: leave out --url")
		}
		return newBare(b.daemon.DataDir(), b.template, b.resolved)
	}
	b.o.Progress = func(s string) { fmt.Fprintln(b.env.Err, "bench: "+s) }
	return b.o.Load.Validate()
}

// resolve gives the spec that the boxes have.
func (b *benchRun) resolve(ctx context.Context) error {
	t, err := b.o.Client.Templates.GetTemplate(ctx, &dsecv1.GetTemplateRequest{Template: b.template})
	if err != nil {
		return dsec.AsError(err)
	}
	b.resolved = spec.Resolve(specwire.From(t.GetTemplate().GetSpec()), b.over)
	return nil
}

// connect uses the server that is named, or starts one.
func (b *benchRun) connect(ctx context.Context) (err error) {
	if b.env.ServerAnswers(ctx) {
		b.o.Client, err = b.env.Client()
		return err
	}
	dir, err := filepath.Abs(b.env.DataDir())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	args := b.upArgs
	if !b.o.Pooled {
		args = append(args, "--no-pool")
	}
	start, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d, err := launch.Start(start, launch.Options{DataDir: dir, Args: args, LogFile: filepath.Join(dir, "bench.log")})
	if err != nil {
		return err
	}
	b.daemon = d
	fmt.Fprintf(b.env.Err, "bench: dsec up was ready after %.0f ms\n", float64(b.daemon.Ready.Microseconds())/1000)
	key, err := b.daemon.Key()
	if err != nil {
		return err
	}
	b.o.Addr, b.o.Key = strings.TrimPrefix(b.daemon.URL(), "http://"), key
	b.o.Client, err = dsec.New(dsec.Options{URL: b.daemon.URL(), APIKey: key})
	return err
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err) // plain data marshals
	}
	return b
}
