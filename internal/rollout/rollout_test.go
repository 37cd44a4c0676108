package rollout

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/errdefs"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a platform whose boxes are maps: a command is "exit N" or "cat FILE".
type memory struct {
	mu      sync.Mutex
	live    map[string]bool
	made    int
	options []dsec.CreateOptions
	broken  func(n int) error // of the nth create
	runErr  error
	most    int
}

func (m *memory) Create(ctx context.Context, o dsec.CreateOptions) (Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	if m.broken != nil {
		if err := m.broken(m.made); err != nil {
			return nil, err
		}
	}
	id := fmt.Sprint("s", m.made)
	m.live[id] = true
	m.most = max(m.most, len(m.live))
	m.options = append(m.options, o)
	return &memorySession{m: m, id: id, files: map[string]string{}}, ctx.Err()
}

func (m *memory) StopAll(context.Context, string, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.live)
	return nil
}

type memorySession struct {
	m     *memory
	id    string
	files map[string]string
}

func (s *memorySession) ID() string { return s.id }

func (s *memorySession) Write(_ context.Context, path, content string, _ uint32) error {
	s.files[path] = content
	return nil
}

func (s *memorySession) Run(ctx context.Context, c dsec.Command) (*dsec.Result, error) {
	if s.m.runErr != nil {
		return nil, s.m.runErr
	}
	select {
	case <-ctx.Done():
		return nil, dsec.AsError(ctx.Err())
	case <-time.After(time.Millisecond):
	}
	r := &dsec.Result{OpId: c.OpID, WallMs: 0.5, Stdout: &dsecv1.Output{}, Stderr: &dsecv1.Output{}}
	switch c.Argv[0] {
	case "exit":
		fmt.Sscan(c.Argv[1], &r.ExitCode)
	case "cat":
		r.Stdout.Head = []byte(s.files[c.Argv[1]])
	case "oom":
		r.ExitCode, r.Signal, r.Oom, r.Limit = -1, "SIGKILL", true, "memory"
	case "missing":
		r.Error = &dsecv1.Error{Class: "user", Reason: "not_found", Message: "no such program"}
	}
	return r, nil
}

func (s *memorySession) Stop(context.Context) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	delete(s.m.live, s.id)
	return nil
}

func tasks(t *testing.T, lines ...string) []Task {
	t.Helper()
	ts, err := Read("t.jsonl", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func play(t *testing.T, m *memory, o Options, ts []Task) ([]Result, Summary) {
	t.Helper()
	if m.live == nil {
		m.live = map[string]bool{}
	}
	var out []Result
	o.ID, o.Done = "run", func(r Result) error { out = append(out, r); return nil }
	sum, err := New(m, o).Run(t.Context(), ts)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.live) != 0 {
		t.Errorf("sessions left: %v", m.live)
	}
	return out, sum
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name, steps   string
		verdict       Verdict
		reward        float64
		class, reason string
	}{
		{"no checks", `{"exec":{"argv":["exit","3"]}}`, Pass, 1, "", ""},
		{"met", `{"check":{"cmd":["exit","0"]},"reward":0.5},{"check":{"cmd":["exit","3"],"expect":{"exit":3}},"reward":2}`, Pass, 2.5, "", ""},
		{"nonzero", `{"check":{"cmd":["exit","3"],"expect":{"exit":"nonzero"}},"reward":1}`, Pass, 1, "", ""},
		{"not met", `{"check":{"cmd":["exit","1"]},"reward":1},{"check":{"cmd":["exit","0"]},"reward":0.25}`, Fail, 0.25, "user", "check_not_met"},
		{"stdout", `{"write":{"path":"a","content":"hi\n"}},{"check":{"cmd":["cat","/workspace/a"],"expect":{"stdout":"hi","stdout_contains":"i"}}}`, Pass, 1, "", ""},
		{"other stdout", `{"check":{"cmd":["cat","/workspace/a"],"expect":{"stdout":"hi"}}}`, Fail, 0, "user", "check_not_met"},
		{"out of memory", `{"check":{"cmd":["oom"]}}`, Fail, 0, "limit", "out_of_memory"},
		{"oom is nonzero", `{"check":{"cmd":["oom"],"expect":{"exit":"nonzero"}}}`, Pass, 1, "", ""},
		{"missing program", `{"exec":{"argv":["missing"]}}`, Pass, 1, "", ""},
		{"missing checker", `{"check":{"cmd":["missing"]}}`, Fail, 0, "user", "not_found"},
	} {
		rs, sum := play(t, &memory{}, Options{}, tasks(t, `{"id":"a","steps":[`+c.steps+`]}`))
		r := rs[0]
		if r.Verdict != c.verdict || r.Reward == nil || *r.Reward != c.reward || r.Class != c.class || r.Reason != c.reason || r.Masked {
			j, _ := json.Marshal(r)
			t.Errorf("%s: %s", c.name, j)
		}
		if sum.Pass+sum.Fail != 1 {
			t.Errorf("%s: %+v", c.name, sum)
		}
	}
}

func infra() error {
	return &dsec.Error{Class: dsec.ClassInfrastructure, Reason: "internal", Message: "node lost"}
}

func TestPlatformFailuresAreMaskedAndRetried(t *testing.T) {
	ts := tasks(t, `{"id":"a","steps":[{"check":{"cmd":["exit","0"]},"reward":1}]}`)
	m := &memory{broken: func(n int) error {
		if n <= 2 {
			return infra()
		}
		return nil
	}}
	rs, sum := play(t, m, Options{Retries: 2}, ts)
	if rs[0].Verdict != Pass || rs[0].Attempt != 3 || sum.Retried != 2 || len(sum.RetriedFailures) != 1 || len(sum.Failures) != 0 {
		t.Errorf("%+v %+v", rs[0], sum)
	}
	rs, sum = play(t, &memory{runErr: infra()}, Options{Retries: 1}, ts)
	if r := rs[0]; r.Verdict != Errored || !r.Masked || r.Reward != nil || sum.Masked != 1 || sum.Retried != 1 || sum.Reward.N != 0 {
		t.Errorf("%+v %+v", r, sum)
	}
	rs, _ = play(t, &memory{runErr: &dsec.Error{Class: "policy", Reason: "box_tampered"}}, Options{Retries: 1}, ts)
	if r := rs[0]; r.Verdict != Fail || r.Masked || *r.Reward != 0 || r.Attempt != 1 || r.Class != "policy" {
		t.Errorf("tampering must be the agent's: %+v", r)
	}
	m = &memory{broken: func(int) error { return &dsec.Error{Class: "user", Reason: "not_found", Message: "no template"} }}
	rs, _ = play(t, m, Options{Retries: 5}, ts)
	if r := rs[0]; r.Verdict != Errored || r.Attempt != 1 {
		t.Errorf("a wrong task is not repeated: %+v", r)
	}
}

func TestGroupAndConcurrency(t *testing.T) {
	var lines []string
	for i := range 20 {
		lines = append(lines, fmt.Sprintf(`{"id":"t%d","labels":{"rollout":"forged"},"files":{"a/b":"x"},"spec":{"mem_limit":"64Mi"},"steps":[{"check":{"cmd":["exit","0"]}}]}`, i))
	}
	m := &memory{}
	rs, sum := play(t, m, Options{Group: 4, Concurrency: 7, Job: "j"}, tasks(t, lines...))
	if len(rs) != 80 || sum.Pass != 80 || m.most > 7 || m.most < 2 {
		t.Errorf("%d results, %+v, most %d at a time", len(rs), sum, m.most)
	}
	keys := map[string]bool{}
	for _, o := range m.options {
		keys[o.IdempotencyKey] = true
		if o.Labels[RunLabel] != "run" || o.Job != "j" || len(o.Code) == 0 || !strings.Contains(o.SpecYAML, "64Mi") {
			t.Fatalf("%+v", o)
		}
	}
	if len(keys) != 80 {
		t.Errorf("%d keys", len(keys))
	}
	if sum.Latency[2].N != 80 || sum.Latency[1].N != 80 {
		t.Errorf("%+v", sum.Latency)
	}
}

func TestInterruptLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := tasks(t, `{"id":"a","think_ms":60000,"steps":[{"exec":{"argv":["exit","0"]}}]}`)
		m := &memory{live: map[string]bool{}}
		ctx, cancel := context.WithCancel(t.Context())
		var rs []Result
		r := New(m, Options{ID: "x", Group: 50, Concurrency: 5, ThinkScale: 1, Done: func(r Result) error { rs = append(rs, r); return nil }})
		time.AfterFunc(90*time.Second, cancel)
		sum, err := r.Run(ctx, ts)
		if !errors.Is(err, context.Canceled) || len(m.live) != 0 {
			t.Errorf("err %v, left %v", err, m.live)
		}
		if sum.Pass != 5 || sum.Errors != 5 || sum.Unplayed != 40 {
			t.Errorf("%+v", sum)
		}
		for _, x := range rs {
			if x.Verdict == Errored && (!x.Masked || x.Reason != "canceled") {
				t.Errorf("%+v", x)
			}
		}
	})
}

func TestEpisodeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs, _ := play(t, &memory{}, Options{ThinkScale: 1}, tasks(t, `{"id":"a","timeout_ms":1000,"think_ms":900,"steps":[{"exec":{"argv":["exit","0"]}},{"check":{"cmd":["exit","0"]}}]}`))
		if r := rs[0]; r.Verdict != Fail || r.Class != "limit" || r.Reason != "timed_out" || *r.Reward != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestStrictTasks(t *testing.T) {
	for text, want := range map[string]string{
		``:                        "holds no task",
		`{`:                       "t:1",
		`{}`:                      "t:1: id: is missing",
		"\n[]":                    "t:2",
		`{"id":"a","steps":[]}`:   "t:1: task a: steps: is empty",
		`{"id":"a","stepz":[]}`:   "stepz: is not a known field (did you mean steps?)",
		`{"id":"a","steps":[{}]}`: "steps[0]: has 0 actions",
		`{"id":"a","steps":[{"exec":{"argv":["x"]},"reward":1}]}`:                                                "steps[0].reward",
		`{"id":"a","steps":[{"exec":{"argv":[]}}]}`:                                                              "steps[0].exec.argv",
		`{"id":"a","steps":[{"exec":{"argv":["x"],"cmd":1}}]}`:                                                   "cmd: is not a known field",
		`{"id":"a","steps":[{"check":{"cmd":7}}]}`:                                                               "cmd is a list of words or a shell's text",
		`{"id":"a","steps":[{"check":{"cmd":"x","expect":{"exit":300}}}]}`:                                       "exit is a number from 0 to 255",
		`{"id":"a","steps":[{"write":{"path":""}}]}`:                                                             "steps[0].write.path",
		`{"id":"a","think_ms":{"dist":"gauss"},"steps":[{}]}`:                                                    `"gauss" is not known`,
		`{"id":"a","think_ms":{"dist":"uniform","min":5},"steps":[{}]}`:                                          "think_ms.max: is missing",
		`{"id":"a","think_ms":{"dist":"exponential","mu":5},"steps":[{}]}`:                                       "mu: is not a known field",
		`{"id":"a","think_ms":-1,"steps":[{}]}`:                                                                  "think_ms",
		`{"id":"a","files":{"../x":""},"steps":[{}]}`:                                                            "files",
		`{"id":"a","cwd":"x","steps":[{}]}`:                                                                      "cwd",
		`{"id":"a","spec":{"mem_limit":"1Ki"},"steps":[{"shell":{"script":"x"}}]}`:                               "spec.mem_limit: 1Ki is too small",
		`{"id":"a","spec":{"queue_length":1},"steps":[{"shell":{"script":"x"}}]}`:                                "is not a sandbox_spec",
		`{"id":"a","steps":[{"shell":{"script":"x"}}]}` + "\n" + `{"id":"a","steps":[{"shell":{"script":"x"}}]}`: "t:2: task a: id: is also on line 1",
	} {
		_, err := Read("t", strings.NewReader(text))
		e := errdefs.From(err)
		if e == nil || e.Class != errdefs.User || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestThinkIsSeededAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		th := Think{
			Dist: rapid.SampledFrom([]string{"constant", "uniform", "exponential", "lognormal"}).Draw(t, "dist"),
			Min:  rapid.Float64Range(0, 10).Draw(t, "min"), Max: rapid.Float64Range(11, 5000).Draw(t, "max"),
			Value: 7, Mean: 100, Median: 100, Sigma: 1,
		}
		if err := th.check("t"); err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		a, b := random(seed, "x", 1), random(seed, "x", 1)
		for range 20 {
			x, y := th.draw(a), th.draw(b)
			if x != y {
				t.Fatalf("%v and %v from one seed", x, y)
			}
			if ms := float64(x) / 1e6; th.Dist != "constant" && (ms < th.Min-0.001 || ms > th.Max+0.001) {
				t.Fatalf("%v ms is outside of %v to %v", ms, th.Min, th.Max)
			}
		}
	})
	if random(1, "x", 0).Uint64() == random(1, "x", 1).Uint64() || random(1, "x", 0).Uint64() == random(2, "x", 0).Uint64() {
		t.Error("different rollouts think alike")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"id":"a","think_ms":{"dist":"uniform","max":5},"steps":[{"check":{"cmd":"x","expect":{"exit":"nonzero"}},"reward":1}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		ts, err := Read("f", strings.NewReader(s))
		if (err == nil) == (len(ts) == 0) {
			t.Fatalf("%d tasks, %v", len(ts), err)
		}
	})
}

func TestSummaryTable(t *testing.T) {
	_, sum := play(t, &memory{}, Options{Group: 2}, tasks(t, `{"id":"a","steps":[{"check":{"cmd":["exit","1"]},"reward":1}]}`))
	var b strings.Builder
	sum.Write(&b)
	for _, want := range []string{"ROLLOUTS", "create → first result", "user", "check_not_met", "rollouts/s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestExamplesParse(t *testing.T) {
	f, err := os.Open("../../examples/rollout/hello.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ts, err := Read("hello.jsonl", f); err != nil || len(ts) != 4 {
		t.Errorf("%d tasks, %v", len(ts), err)
	}
}

func TestCodeIsAWholeTar(t *testing.T) {
	b, err := code(map[string]string{"b": "2", "a/x": "1"})
	if err != nil {
		t.Fatal(err)
	}
	if len(b)%512 != 0 || !bytes.Equal(b[len(b)-1024:], make([]byte, 1024)) {
		t.Error("the tar has no end")
	}
	tr := tar.NewReader(bytes.NewReader(b))
	for _, want := range []string{"a/x1", "b2"} {
		h, err := tr.Next()
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(tr)
		if h.Name+string(data) != want {
			t.Errorf("%s%s, want %s", h.Name, data, want)
		}
	}
}

// A create that an episode did not wait for goes on by its key: its session is ended with the run.
func TestNoSessionIsLeftByASlowCreate(t *testing.T) {
	tasks, err := Read("t", strings.NewReader(`{"id":"a","timeout_ms":1,"steps":[{"exec":{"argv":["true"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{live: map[string]bool{}, broken: func(int) error { time.Sleep(10 * time.Millisecond); return nil }}
	sum, err := New(m, Options{ID: "r"}).Run(t.Context(), tasks)
	if err != nil || sum.Errors != 1 || len(m.live) != 0 {
		t.Errorf("%+v, %v; left: %v", sum, err, m.live)
	}
}
