package rollout

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// RunLabel marks every session of a run with the run's id.
const RunLabel = "rollout"

// Options of a Runner.
type Options struct {
	ID          string // of this run; names its sessions
	Group       int    // rollouts of each task
	Concurrency int    // at a time
	Seed        uint64
	// ThinkScale multiplies every pause; 0 leaves thinking out.
	ThinkScale float64
	// Retries of a rollout that the platform failed.
	Retries  int
	Template string // replaces the tasks' own
	Job      string
	NoPool   bool
	// Done is told each rollout's final result, one at a time; an error stops the run.
	Done func(Result) error
}

// Runner plays tasks on a platform. It is used once.
type Runner struct {
	p  Platform
	o  Options
	at counters
	m  metrics
	// unsure: a create failed whose session may exist all the same.
	unsure atomic.Bool
}

// counters are read while the run goes on.
type counters struct{ total, started, done, pass, fail, errored, retried atomic.Int64 }

// New makes a runner.
func New(p Platform, o Options) *Runner {
	o.Group, o.Concurrency = max(o.Group, 1), max(o.Concurrency, 1)
	return &Runner{p: p, o: o, m: newMetrics()}
}

// job is one rollout to be played.
type job struct {
	task  *Task
	index int
}

// Run plays every task Group times, Concurrency at a time, in the order of the
// file. When ctx ends it stops: what runs is ended, nothing more is started, and
// no session of the run is left. It returns the summary in either case.
func (r *Runner) Run(ctx context.Context, tasks []Task) (Summary, error) {
	start := time.Now()
	r.at.total.Store(int64(len(tasks) * r.o.Group))
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	jobs := make(chan job)
	var wg sync.WaitGroup
	var doneMu sync.Mutex
	for range min(r.o.Concurrency, len(tasks)*r.o.Group) {
		wg.Go(func() {
			for j := range jobs {
				res := r.play(run, j)
				doneMu.Lock()
				r.count(&res)
				if r.o.Done != nil {
					if err := r.o.Done(res); err != nil {
						stop(err)
					}
				}
				doneMu.Unlock()
			}
		})
	}
feed:
	for i := range tasks {
		for g := range r.o.Group {
			select {
			case jobs <- job{&tasks[i], g}:
			case <-run.Done():
				break feed
			}
		}
	}
	close(jobs)
	wg.Wait()
	sum := r.m.summary(r, time.Since(start))
	return sum, r.finish(ctx, run)
}

// finish ends sessions that an interrupted create may have left: with its key it goes on without us.
func (r *Runner) finish(ctx, run context.Context) error {
	if run.Err() == nil && !r.unsure.Load() {
		return nil
	}
	c, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	if err := r.p.StopAll(c, RunLabel, r.o.ID); err != nil {
		return fmt.Errorf("the run's sessions could not all be stopped: %w", err)
	}
	return context.Cause(run)
}

// play plays one rollout, again while the platform fails it and retries are left.
func (r *Runner) play(ctx context.Context, j job) Result {
	r.at.started.Add(1)
	o, err := r.create(j)
	for attempt := 1; ; attempt++ {
		e := &episode{task: j.task, rng: random(r.o.Seed, j.task.ID, j.index), scale: r.o.ThinkScale, onExec: r.m.exec}
		e.res = Result{Task: j.task.ID, Index: j.index, Attempt: attempt, Steps: []StepResult{}}
		if err != nil {
			e.failed(err)
			e.res.Verdict, e.res.Masked = Errored, true
			return e.res
		}
		o.IdempotencyKey = fmt.Sprintf("%s-%d-%d-%d", r.o.ID, j.task.line, j.index, attempt)
		e.run(ctx, r.p, o)
		if e.res.Session == "" {
			r.unsure.Store(true)
		}
		if !e.res.Masked || attempt > r.o.Retries || ctx.Err() != nil || !worthRepeating(&e.res) {
			return e.res
		}
		r.at.retried.Add(1)
		r.m.retried(&e.res)
	}
}

// worthRepeating leaves out what would be refused again.
func worthRepeating(res *Result) bool {
	return platformsFault(res.Class, res.Reason) || res.Class == dsec.ClassLimit
}

func (r *Runner) create(j job) (dsec.CreateOptions, error) {
	t := j.task
	files, err := code(t.Files)
	labels := map[string]string{RunLabel: r.o.ID}
	maps.Copy(labels, t.Labels)
	labels[RunLabel] = r.o.ID
	o := dsec.CreateOptions{
		Template: t.Template, SpecYAML: t.specYAML, Env: t.Env, Labels: labels, Job: r.o.Job, Code: files, NoPool: r.o.NoPool,
	}
	if r.o.Template != "" {
		o.Template = r.o.Template
	}
	if files != nil {
		o.CodeDir = t.Cwd
	}
	return o, err
}

func (r *Runner) count(res *Result) {
	r.at.done.Add(1)
	switch res.Verdict {
	case Pass:
		r.at.pass.Add(1)
	case Fail:
		r.at.fail.Add(1)
	default:
		r.at.errored.Add(1)
	}
	r.m.result(res)
}

// Progress is how far the run is; it may be asked at any time.
type Progress struct {
	Total, Running, Done, Pass, Fail, Errors, Retried int64
	FirstResultP50                                    time.Duration
}

// Progress tells how far the run is.
func (r *Runner) Progress() Progress {
	p := r.at.progress()
	p.FirstResultP50 = r.m.firstP50()
	return p
}

func (c *counters) progress() Progress {
	done := c.done.Load()
	return Progress{
		Total: c.total.Load(), Done: done, Running: c.started.Load() - done,
		Pass: c.pass.Load(), Fail: c.fail.Load(), Errors: c.errored.Load(), Retried: c.retried.Load(),
	}
}
