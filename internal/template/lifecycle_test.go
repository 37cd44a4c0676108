package template

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func tarFile(t testing.TB, b []byte) Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.tar")
	write(t, path, b)
	return Source{Kind: Tar, Ref: path}
}

func TestVersionsAndNames(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	ctx := t.Context()
	one, err := s.Import(ctx, ImportRequest{Name: "py", Source: tarFile(t, rootfs(t))})
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.Import(ctx, ImportRequest{Name: "py", Source: tarFile(t, rootfs(t)), Env: []string{"X=1"}})
	if err != nil || two.Version == one.Version {
		t.Fatalf("%v, %v", two, err)
	}
	for ref, want := range map[string]string{"py": two.Version, "py@" + one.Version: one.Version, "py@" + one.Version[:6]: one.Version} {
		if got, err := s.Get(ctx, ref); err != nil || got.Version != want {
			t.Errorf("%s = %v, %v", ref, got, err)
		}
	}
	for ref, hint := range map[string]string{"pyy": "did you mean py?", "py@fffff": "there is no such version (`dsec template ls` lists", "zzz": "template ls", "py@../../x": "no such version"} {
		if _, err := s.Get(ctx, ref); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	// The same again makes the old version the newest, and no new one.
	again, err := s.Import(ctx, ImportRequest{Name: "py", Source: tarFile(t, rootfs(t))})
	if err != nil || again.Version != one.Version || !again.Newest || !again.Created.Equal(one.Created) {
		t.Errorf("%+v, %v", again, err)
	}
	if err := s.Remove(ctx, "py@"+one.Version); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(ctx, "py"); err != nil || got.Version != two.Version || !got.Newest {
		t.Errorf("after removal: %+v, %v", got, err)
	}
	if err := s.Remove(ctx, "py"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s)
}

func TestNoRemovalWhileInUse(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if _, err := s.Import(t.Context(), ImportRequest{Name: "used", Source: tarFile(t, rootfs(t))}); err != nil {
		t.Fatal(err)
	}
	_, root, release, err := s.Resolve(t.Context(), "used")
	if err != nil {
		t.Fatal(err)
	}
	_, _, release2, err := s.Resolve(t.Context(), "used")
	if err != nil {
		t.Fatal(err)
	}
	other := open(t, filepath.Dir(s.dir), Options{}) // as another process has it
	for _, store := range []*Local{s, other} {
		if err := store.Remove(t.Context(), "used"); !errors.Is(err, errdefs.ErrConflict) {
			t.Errorf("removed while in use: %v", err)
		}
	}
	mine, _ := s.Get(t.Context(), "used")
	theirs, _ := other.Get(t.Context(), "used")
	if mine.InUse != 2 || theirs.InUse != 1 {
		t.Errorf("in use: %d, seen by others: %d", mine.InUse, theirs.InUse)
	}
	release()
	release() // once is enough, twice is harmless
	if err := s.Remove(t.Context(), "used"); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("removed while in use: %v", err)
	}
	if _, err := os.Stat(root.Layers[0].Path); err != nil {
		t.Error(err)
	}
	release2()
	if err := other.Remove(t.Context(), "used"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s)
}

// What a killed process used is not pinned for ever.
func TestKilledUserUnpins(t *testing.T) {
	if dir := os.Getenv("DSEC_TEST_DATA"); dir != "" {
		if _, _, _, err := open(t, dir, Options{}).Resolve(t.Context(), "used"); err != nil {
			t.Fatal(err)
		}
		fmt.Println("resolved")
		time.Sleep(time.Minute)
		return
	}
	s := open(t, t.TempDir(), Options{})
	if _, err := s.Import(t.Context(), ImportRequest{Name: "used", Source: tarFile(t, rootfs(t))}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledUserUnpins$")
	cmd.Env = append(os.Environ(), "DSEC_TEST_DATA="+filepath.Dir(s.dir))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 16))
	if err := s.Remove(t.Context(), "used"); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("removed while in use: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := s.Remove(t.Context(), "used"); err != nil {
		t.Error(err)
	}
}

func TestConcurrentImportsAndRemovals(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	same := tarFile(t, rootfs(t))
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			store := s
			if i%2 == 1 {
				store = open(t, filepath.Dir(s.dir), Options{})
			}
			for range 3 {
				if _, err := store.Import(t.Context(), ImportRequest{Name: "one", Source: same}); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
					t.Error(err)
				}
				_, root, release, err := store.Resolve(t.Context(), "one")
				if err == nil {
					for _, l := range root.Layers {
						if _, err := os.Stat(l.Path); err != nil {
							t.Error("a layer in use is gone:", err)
						}
					}
					release()
				} else if !errors.Is(err, errdefs.ErrNotFound) {
					t.Error(err)
				}
				if err := store.Remove(t.Context(), "one"); err != nil && !errors.Is(err, errdefs.ErrNotFound) && !errors.Is(err, errdefs.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Remove(t.Context(), "one"); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		t.Error(err)
	}
	if err := s.collect(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, s)
}

// stepBuilder stands for a box: it writes what a command would have into an
// upper directory, and records what it was asked.
type stepBuilder struct {
	runs []BuildRun
	fail string
}

func (b *stepBuilder) RunInBox(ctx context.Context, run BuildRun, collect func(string) error) error {
	b.runs = append(b.runs, run)
	cmd := run.Argv[len(run.Argv)-1]
	fmt.Fprintf(run.Output, "running %s\n", cmd)
	if cmd == b.fail {
		return errdefs.Userf(errdefs.InvalidArgument, "init step", "fix the command", "exit code 1")
	}
	upper, err := os.MkdirTemp("", "dsec-upper-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(upper)
	if err := os.WriteFile(filepath.Join(upper, "made-by-"+cmd), []byte(cmd), 0o644); err != nil {
		return err
	}
	return collect(upper)
}

func (b *stepBuilder) StartInBox(context.Context, BuildRun, StartCommand) error { return nil }

func TestInitStepsRunOnce(t *testing.T) {
	b := &stepBuilder{}
	s := open(t, t.TempDir(), Options{Builder: b})
	src := tarFile(t, rootfs(t))
	var log bytes.Buffer
	req := ImportRequest{Name: "app", Source: src, Init: []string{"one", "two"}, Env: []string{"K=v"},
		Progress: func(p Progress) { fmt.Fprintln(&log, p.Stage, p.Message) }}
	tpl, err := s.Import(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.runs) != 2 || len(b.runs[1].Root.Layers) != 3 || !slices.Equal(b.runs[0].Argv, []string{"/bin/sh", "-c", "one"}) || !slices.Contains(b.runs[0].Env, "K=v") {
		t.Errorf("runs %+v", b.runs)
	}
	if len(tpl.Layers) != 4 || tpl.Layers[0].Note != "init: two" || tpl.Layers[2].Note != "toolkit" {
		t.Errorf("layers %+v", tpl.Layers)
	}
	if !strings.Contains(log.String(), "init 2/2 running two\n") {
		t.Errorf("progress:\n%s", &log)
	}
	// Again, and with one more step: what has been done is not done again.
	if again, err := s.Import(t.Context(), req); err != nil || again.Version != tpl.Version || len(b.runs) != 2 {
		t.Errorf("again: %v, %d runs", err, len(b.runs))
	}
	req.Init = append(req.Init, "three")
	if more, err := s.Import(t.Context(), req); err != nil || len(more.Layers) != 5 || len(b.runs) != 3 {
		t.Errorf("more: %v, %d runs", err, len(b.runs))
	}
	req.Fresh = true
	if _, err := s.Import(t.Context(), req); err != nil || len(b.runs) != 6 {
		t.Errorf("fresh: %v, %d runs", err, len(b.runs))
	}
	if err := s.Remove(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s)
}

func TestFailedInitStepKeepsWhatWasDone(t *testing.T) {
	b := &stepBuilder{fail: "two"}
	s := open(t, t.TempDir(), Options{Builder: b})
	req := ImportRequest{Name: "app", Source: tarFile(t, rootfs(t)), Init: []string{"one", "two"}}
	_, err := s.Import(t.Context(), req)
	if e := errdefs.From(err); err == nil || e.Class != errdefs.User || !strings.Contains(err.Error(), "exit code 1") {
		t.Fatalf("err = %v", err)
	}
	if all, err := s.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("templates: %v, %v", all, err)
	}
	b.fail = ""
	if _, err := s.Import(t.Context(), req); err != nil || len(b.runs) != 3 {
		t.Errorf("next attempt: %v, %d runs", err, len(b.runs))
	}
	if err := s.Remove(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s)
}

func TestCancelledImportLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := open(t, t.TempDir(), Options{Builder: &stepBuilder{}})
	req := ImportRequest{Name: "app", Source: tarFile(t, rootfs(t)), Init: []string{"one", "two"}}
	req.Progress = func(p Progress) {
		if p.Stage == "init 2/2" {
			cancel()
		}
	}
	_, err := s.Import(ctx, req)
	if e := errdefs.From(err); e == nil || e.Reason != errdefs.Canceled {
		t.Errorf("err = %v", err)
	}
	nothingLeft(t, s)
}

// A process that is killed in the middle of an import: the next open leaves
// nothing half-made, and the next collection nothing unused.
func TestKilledImportLeavesNothing(t *testing.T) {
	if dir := os.Getenv("DSEC_TEST_IMPORT"); dir != "" {
		s := open(t, dir, Options{Builder: blockingBuilder{}})
		s.Import(t.Context(), ImportRequest{Name: "app", Source: tarFile(t, rootfs(t)), Init: []string{"one"}})
		return
	}
	s := open(t, t.TempDir(), Options{})
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledImportLeavesNothing$")
	cmd.Env = append(os.Environ(), "DSEC_TEST_IMPORT="+filepath.Dir(s.dir), "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 16))
	cmd.Process.Kill()
	cmd.Wait()
	s = open(t, filepath.Dir(s.dir), Options{})
	if _, err := s.Import(t.Context(), ImportRequest{Name: "other", Source: tarFile(t, tarOf(t, "f", "x"))}); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s)
}

type blockingBuilder struct{}

func (blockingBuilder) StartInBox(context.Context, BuildRun, StartCommand) error { return nil }

func (blockingBuilder) RunInBox(ctx context.Context, run BuildRun, collect func(string) error) error {
	fmt.Println("in the box")
	<-ctx.Done()
	return ctx.Err()
}
