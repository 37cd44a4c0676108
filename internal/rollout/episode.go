package rollout

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// episode is one attempt at one task.
type episode struct {
	task *Task
	rng  *rand.Rand
	// scale multiplies every pause; 0 leaves thinking out.
	scale float64
	res   Result
	// onExec is told each command's call and own time.
	onExec func(call, command time.Duration)
}

// stopWait bounds the wait for a session's end, also after Ctrl-C.
const stopWait = 60 * time.Second

// run plays the task on a fresh session and fills the result.
func (e *episode) run(ctx context.Context, p Platform, o dsec.CreateOptions) {
	start := time.Now()
	defer func() { e.res.Wall = ms(time.Since(start)) }()
	if t := e.task.TimeoutMs; t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(t)*time.Millisecond)
		defer cancel()
	}
	s, err := p.Create(ctx, o)
	created := time.Since(start)
	e.res.Create = ms(created)
	if err != nil {
		// The agent has done nothing yet, so it is not the one that failed.
		e.failed(err)
		e.res.Verdict, e.res.Masked = Errored, true
		return
	}
	e.res.Session = s.ID()
	e.steps(ctx, s, created)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	if err := s.Stop(stop); err != nil && e.res.Verdict != Errored {
		e.failed(err)
		e.res.Verdict, e.res.Masked = Errored, true
	}
}

func (e *episode) steps(ctx context.Context, s Session, created time.Duration) {
	e.res.Verdict = Pass
	sum, said := 0.0, false
	for i := range e.task.Steps {
		st := &e.task.Steps[i]
		if err := e.think(ctx, st); err != nil {
			e.end(ctx, err)
			return
		}
		begin := time.Now()
		r, err := e.step(ctx, s, st, i)
		r.Call = ms(time.Since(begin))
		if i == 0 && err == nil {
			e.res.FirstResult = ms(created + time.Since(begin))
		}
		if st.Reward != nil {
			said = true
			if r.Met != nil && *r.Met {
				sum += *st.Reward
				r.Reward = st.Reward
			}
		}
		e.res.Steps = append(e.res.Steps, r)
		if err != nil {
			e.end(ctx, err)
			return
		}
		if r.Met != nil && !*r.Met && e.res.Verdict == Pass {
			e.res.Verdict = Fail
			e.res.Class, e.res.Reason = blame(r)
			e.res.Message = fmt.Sprintf("step %d: the check was not met", i)
		}
	}
	if !said && e.res.Verdict == Pass {
		sum = 1
	}
	e.res.Reward = &sum
}

// end decides what an error that cut the episode short means.
func (e *episode) end(ctx context.Context, err error) {
	e.failed(err)
	if platformsFault(e.res.Class, e.res.Reason) || errors.Is(context.Cause(ctx), context.Canceled) {
		e.res.Verdict, e.res.Masked, e.res.Reward = Errored, true, nil
		return
	}
	zero := 0.0
	e.res.Verdict, e.res.Reward = Fail, &zero
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.res.Class, e.res.Reason, e.res.Message = dsec.ClassLimit, "timed_out", "the episode passed its timeout_ms"
	}
}

func (e *episode) failed(err error) {
	d, ok := errors.AsType[*dsec.Error](dsec.AsError(err))
	if !ok {
		e.res.Class, e.res.Reason, e.res.Message = dsec.ClassInfrastructure, "internal", err.Error()
		return
	}
	e.res.Class, e.res.Reason, e.res.Message = d.Class, d.Reason, d.Error()
}

// platformsFault tells what no agent can cause: failures of the infrastructure,
// and the server's own refusals to take a call now.
func platformsFault(class, reason string) bool {
	return class == dsec.ClassInfrastructure || reason == "rate_limited" || reason == "unavailable"
}

// blame says what kept a check from being met.
func blame(r StepResult) (class, reason string) {
	switch {
	case r.TimedOut:
		return dsec.ClassLimit, "timed_out"
	case r.OOM:
		return dsec.ClassLimit, "out_of_memory"
	case r.Limit != "":
		return dsec.ClassLimit, r.Limit
	}
	return dsec.ClassUser, "check_not_met"
}

func (e *episode) think(ctx context.Context, st *Step) error {
	t := st.Think
	if t == nil {
		t = e.task.Think
	}
	d := time.Duration(float64(t.draw(e.rng)) * e.scale)
	if d <= 0 {
		return ctx.Err()
	}
	begin := time.Now()
	defer func() { e.res.Thought += ms(time.Since(begin)) }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (e *episode) step(ctx context.Context, s Session, st *Step, i int) (StepResult, error) {
	r := StepResult{Kind: st.Kind()}
	if w := st.Write; w != nil {
		return r, s.Write(ctx, at(e.task.Cwd, w.Path), w.Content, w.Mode)
	}
	var c dsec.Command
	switch {
	case st.Exec != nil:
		c = command(e.task.Cwd, st.Exec.How, st.Exec.Argv, "", "")
	case st.Shell != nil:
		c = command(e.task.Cwd, st.Shell.How, nil, st.Shell.Script, st.Shell.Session)
	default:
		c = command(e.task.Cwd, st.Check.How, st.Check.Cmd.Argv, st.Check.Cmd.Script, "")
	}
	c.OpID = fmt.Sprintf("step-%d", i)
	begin := time.Now()
	out, err := s.Run(ctx, c)
	if err == nil {
		err = startError(out, st)
	}
	if err != nil {
		return r, err
	}
	e.onExec(time.Since(begin), time.Duration(out.GetWallMs()*float64(time.Millisecond)))
	exit := out.GetExitCode()
	r.Exit, r.Signal, r.TimedOut, r.OOM, r.Limit, r.OpID, r.Command = &exit, out.GetSignal(), out.GetTimedOut(), out.GetOom(), out.GetLimit(), out.GetOpId(), out.GetWallMs()
	if st.Check != nil {
		met := st.Check.Expect.met(out)
		r.Met = &met
		if !met {
			r.Output = tail(string(dsec.Output(out.GetStdout())) + string(dsec.Output(out.GetStderr())))
		}
	}
	return r, nil
}

// startError gives the error of a command that could not be started; that a
// program does not exist is the agent's affair, as a shell's 127 is.
func startError(out *dsec.Result, st *Step) error {
	if out.GetError() == nil {
		return nil
	}
	err := dsec.FromWire(out.GetError())
	if err.Class == dsec.ClassUser && st.Check == nil {
		return nil
	}
	return err
}

// met compares a command's end with what was expected.
func (x *Expect) met(r *dsec.Result) bool {
	want := Exit{}
	if x.Exit != nil {
		want = *x.Exit
	}
	ended := !r.GetTimedOut() && r.GetSignal() == "" && r.GetError() == nil
	if want.NonZero {
		if ended && r.GetExitCode() == 0 {
			return false
		}
	} else if !ended || int(r.GetExitCode()) != want.Code {
		return false
	}
	stdout, stderr := string(dsec.Output(r.GetStdout())), string(dsec.Output(r.GetStderr()))
	if x.Stdout != nil && strings.TrimRight(stdout, " \t\r\n") != strings.TrimRight(*x.Stdout, " \t\r\n") {
		return false
	}
	return strings.Contains(stdout, x.StdoutContains) && strings.Contains(stderr, x.StderrContains)
}

func at(cwd, p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(cwd, p)
}

// tail keeps the end of an output.
func tail(s string) string {
	const most = 2000
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > most {
		s = "…" + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return s
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// code packs a task's files as the tar that is put into the box before it runs.
func code(files map[string]string) ([]byte, error) {
	if len(files) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: path.Clean(name), Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
