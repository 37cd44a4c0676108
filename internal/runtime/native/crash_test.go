package native

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// crashEnv makes this test binary a daemon that makes and destroys boxes until
// it is killed. Its value is the machine: a JSON crashSetup.
const crashEnv = "DSEC_TEST_CRASH_DAEMON"

type crashSetup struct {
	Dir    string
	Prefix string
	Config runtime.Config
}

// crashDaemon prints "made RECORD" once a box is acknowledged and "going ID"
// before it begins to destroy one.
func crashDaemon(raw string) error {
	var s crashSetup
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return err
	}
	r, err := New(Options{DataDir: s.Dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	failed := make(chan error)
	for worker := range 3 {
		go func() {
			for i := 0; ; i++ {
				c := s.Config
				c.ID = fmt.Sprintf("b%s-%d-%d", s.Prefix, worker, i)
				if i%4 == 3 {
					c.RootWritable, c.Store = true, "disk"
				}
				b, err := r.Create(context.Background(), c)
				if err != nil {
					failed <- err
					return
				}
				rec, _ := json.Marshal(b.Record())
				say("made %s", rec)
				if i%2 == 0 {
					continue
				}
				say("going %s", c.ID)
				if err := b.Destroy(context.Background()); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// TestDaemonKilledUnderLoad: every acknowledged box is adopted and answers,
// everything else is swept, whenever the daemon dies, and the spawner with it.
func TestDaemonKilledUnderLoad(t *testing.T) {
	m := newMachine(t)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	rounds := 6
	if testing.Short() { // emulated
		rounds = 2
	}
	adopted, swept := 0, 0
	for round := range rounds {
		made, going := m.crash(round)
		m.start()
		keep := map[string]bool{}
		for id, rec := range made {
			if going[id] {
				continue
			}
			b, err := m.Open(ctx(t), rec)
			if err != nil {
				t.Errorf("round %d: %v", round, err)
				continue
			}
			keep[id] = true
			if got := out(t, guestOf(t, b), "user", "echo alive"); got != "alive" {
				t.Errorf("box %s says %q", id, got)
			}
		}
		found, err := m.Sweep(ctx(t), func(id string) bool { return keep[id] })
		if err != nil {
			t.Error(err)
		}
		for _, o := range found {
			if o.Err != nil {
				t.Errorf("%+v", o)
			}
		}
		adopted, swept = adopted+len(keep), swept+len(found)
		for id := range keep {
			if err := m.boxes[id].Destroy(ctx(t)); err != nil {
				t.Error(err)
			}
		}
		m.clean()
		if round < rounds-1 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d rounds: %d boxes adopted, %d traces swept", rounds, adopted, swept)
	if adopted == 0 {
		t.Error("no box was made")
	}
}

// crash runs a daemon, kills it, in odd rounds with its spawner, and gives
// what it said.
func (m *machine) crash(round int) (made map[string]runtime.Record, going map[string]bool) {
	m.t.Helper()
	setup, err := json.Marshal(crashSetup{Dir: m.dir, Prefix: itoa(round), Config: m.config()})
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+string(setup))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	made, going = map[string]runtime.Record{}, map[string]bool{}
	var kill *time.Timer
	for lines.Scan() {
		if kill == nil { // from the first box on, at another moment each round
			kill = time.AfterFunc(time.Duration(37*(round+1))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		}
		what, rest, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "made":
			var rec runtime.Record
			if err := json.Unmarshal([]byte(rest), &rec); err != nil {
				m.t.Errorf("%q: %v", rest, err)
			}
			made[rec.ID] = rec
		case "going":
			going[rest] = true
		}
	}
	_ = cmd.Wait()
	if round%2 == 1 {
		var raw []byte
		for _, top := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/unified/"} { // v2, hybrid
			more, _ := os.ReadFile(top + rootName(m.dir) + "/_spawner/cgroup.procs")
			raw = append(raw, more...)
		}
		for f := range strings.FieldsSeq(string(raw)) {
			var pid int
			if _, err := fmt.Sscan(f, &pid); err == nil {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	return made, going
}
