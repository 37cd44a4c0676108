package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/store"
	"github.com/dsec-platform/dsec/internal/store/storetest"
)

// crashEnv makes this binary a process that writes until it is killed.
const crashEnv = "DSEC_STORETEST_CRASH_DB"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		writeUntilKilled(path)
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, path string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (*store.Store, func() *store.Store) {
		path := filepath.Join(t.TempDir(), "a ?#%20.db") // a path is a path, whatever a URL would make of it
		return open(t, path), func() *store.Store { return open(t, path) }
	})
}

// TestKilled kills a writing process and finds every write that it had acknowledged.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dsec.db")
	for round := range 3 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), crashEnv+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acked []string
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			acked = append(acked, lines.Text())
			if len(acked) == 50*(round+1) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed: an error is the point
		s := open(t, path)
		for _, id := range acked {
			if _, err := s.Get(t.Context(), id); err != nil {
				t.Errorf("acknowledged and lost: %v", err)
			}
		}
		live, err := s.Live(t.Context())
		p, perr := s.Project(t.Context(), "p")
		if err != nil || perr != nil || len(acked) == 0 || int(p.Live) != len(live) {
			t.Errorf("acked %d, live %d, quota %+v, %v %v", len(acked), len(live), p, err, perr)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func writeUntilKilled(path string) {
	ctx := context.Background()
	s, err := store.Open(ctx, path)
	if err != nil {
		panic(err)
	}
	if _, err := s.EnsureProject(ctx, store.Project{ID: "p", Created: storetest.Epoch}); err != nil {
		panic(err)
	}
	for n := 0; ; n++ {
		rec := storetest.Sample("p", os.Getpid()*100_000+n)
		if _, err := s.Insert(ctx, store.Insert{Project: "p", Sessions: []*store.Session{rec}}); err != nil {
			panic(err)
		}
		fmt.Println(rec.ID)
	}
}

// TestLibc: modernc.org/sqlite works only with the libc that it was made with.
func TestLibc(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "modernc.org/sqlite").Output()
	if err != nil {
		t.Skipf("the go command does not answer: %v", err)
	}
	libc := regexp.MustCompile(`modernc\.org/libc (v\S+)`)
	find := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := libc.FindSubmatch(b)
		if m == nil {
			t.Fatalf("%s names no modernc.org/libc", path)
		}
		return string(m[1])
	}
	ours, theirs := find("../../go.mod"), find(filepath.Join(strings.TrimSpace(string(out)), "go.mod"))
	if ours != theirs {
		t.Fatalf("go.mod has modernc.org/libc %s, modernc.org/sqlite was made with %s", ours, theirs)
	}
}

func BenchmarkInsert(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "dsec.db"))
	defer s.Close()
	if _, err := s.EnsureProject(b.Context(), store.Project{ID: "p", Created: storetest.Epoch}); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		if _, err := s.Insert(b.Context(), store.Insert{Project: "p", Sessions: []*store.Session{storetest.Sample("p", n)}}); err != nil {
			b.Fatal(err)
		}
	}
}
