package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsec-platform/dsec/internal/rollout"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

type rolloutFlags struct {
	o           rollout.Options
	out         string
	limit       int
	requirePass bool
}

func newRollout(e *Env) *cobra.Command {
	var f rolloutFlags
	cmd := &cobra.Command{
		Use:   "rollout [flags] TASKS.jsonl",
		Short: "Run recorded episodes as agents, many at a time, with verdicts and rewards",
		Long: `Run recorded tool-call sequences as agents: for each line of TASKS.jsonl (- is
standard input) --group sessions, each with the task's steps (write files, run
commands, think, check), a verdict and a reward. docs/rollout.md has the format.

Failures of the platform are no verdict about the agent: they are masked, may be
retried, and are reported apart. Ctrl-C ends the run and every session of it.

The exit code is 0 when every rollout got a verdict, 125 when the platform failed
some, 1 when tasks could not run, or with --require-pass when some did not pass.`,
		Example: `  dsec rollout tasks.jsonl
  dsec rollout -g 4 -c 64 --seed 7 --out results.jsonl tasks.jsonl
  dsec rollout --think-scale 0 --limit 10 -o json tasks.jsonl`,
		Args: nArgs(1, 1, "TASKS.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := &f.o
			if o.Group < 1 || o.Concurrency < 1 || o.Retries < 0 || o.ThinkScale < 0 || f.limit < 0 {
				return usagef("--group and --concurrency are 1 or more; --retries, --think-scale and --limit are 0 or more")
			}
			return e.rollout(cmd.Context(), args[0], &f)
		},
	}
	fl := cmd.Flags()
	fl.IntVarP(&f.o.Group, "group", "g", 1, "rollouts of each task")
	fl.IntVarP(&f.o.Concurrency, "concurrency", "c", 8*runtime.NumCPU(), "rollouts at a time")
	fl.Uint64Var(&f.o.Seed, "seed", 1, "seed of the think times")
	fl.Float64Var(&f.o.ThinkScale, "think-scale", 1, "multiplies think times; 0 leaves them out")
	fl.IntVar(&f.o.Retries, "retries", 0, "retries of a rollout that the platform failed")
	fl.StringVarP(&f.o.Template, "template", "t", "", "replaces the tasks' template")
	fl.StringVar(&f.o.Job, "job", "", "job of the sessions")
	fl.BoolVar(&f.o.NoPool, "no-pool", false, "never take boxes of the warm pool")
	fl.StringVar(&f.out, "out", "", "file for the results, one JSON object a line")
	fl.IntVar(&f.limit, "limit", 0, "only the first tasks (0: all)")
	fl.BoolVar(&f.requirePass, "require-pass", false, "exit with 1 unless every rollout passed")
	return cmd
}

func (e *Env) rollout(ctx context.Context, file string, f *rolloutFlags) error {
	tasks, err := e.readTasks(file)
	if err != nil {
		return err
	}
	if f.limit > 0 && f.limit < len(tasks) {
		tasks = tasks[:f.limit]
	}
	client, err := e.Client()
	if err != nil {
		return err
	}
	if err := client.Healthy(ctx); err != nil { // one clear error instead of one for each rollout
		return err
	}
	done, closeOut, err := resultWriter(f.out)
	if err != nil {
		return err
	}
	f.o.ID, f.o.Done = runID(), done
	r := rollout.New(rollout.Server{Client: client}, f.o)
	stop := e.showProgress(r)
	sum, err := r.Run(ctx, tasks)
	stop()
	err = errors.Join(err, closeOut())
	if e.JSON() {
		if perr := printJSON(e.Out, sum); perr != nil {
			return perr
		}
	} else {
		sum.Write(e.Out)
	}
	if err != nil {
		return err
	}
	return rolloutExit(&sum, f.requirePass)
}

func (e *Env) readTasks(file string) ([]rollout.Task, error) {
	if file == "-" {
		return rollout.Read("-", e.In)
	}
	r, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return rollout.Read(file, r)
}

// resultWriter appends results to a new file as they come, so that a killed run
// leaves what it had.
func resultWriter(name string) (done func(rollout.Result) error, closeOut func() error, err error) {
	if name == "" {
		return nil, func() error { return nil }, nil
	}
	w, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	enc := json.NewEncoder(io.Writer(w))
	enc.SetEscapeHTML(false)
	return func(r rollout.Result) error { return enc.Encode(r) }, w.Close, nil
}

func runID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// showProgress keeps a line up to date, or writes one every few seconds.
func (e *Env) showProgress(r *rollout.Runner) (stop func()) {
	p := e.progress()
	if p.off {
		return func() {}
	}
	every := 5 * time.Second
	if p.live {
		every = 200 * time.Millisecond
	}
	start := time.Now()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				p.done()
				return
			case <-tick.C:
				if line := progressLine(r.Progress(), time.Since(start)); p.live {
					p.status(line)
				} else {
					p.step(line, 0, 0)
				}
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

func progressLine(p rollout.Progress, since time.Duration) string {
	return fmt.Sprintf("%d/%d done, %d running: %d pass, %d fail, %d error; %.1f/s; first result p50 %.1f ms",
		p.Done, p.Total, p.Running, p.Pass, p.Fail, p.Errors, float64(p.Done)/since.Seconds(), float64(p.FirstResultP50.Microseconds())/1000)
}

func rolloutExit(s *rollout.Summary, requirePass bool) error {
	for _, f := range s.Failures {
		if f.Masked > 0 && f.Class == dsec.ClassInfrastructure {
			return exitCode(exitPlatform)
		}
	}
	if s.Errors > 0 || requirePass && s.Pass < s.Rollouts {
		return exitCode(exitFailed)
	}
	return nil
}
