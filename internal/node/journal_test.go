package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/runtime"
)

var sample = []*record{
	{Kind: recEpoch, BootID: "boot", Epoch: 3, Run: 4},
	{Kind: recCreating, Box: "b1", Meta: &meta{Session: "s1", Version: 7, Runtime: "fake", Template: "base@1", Limits: runtime.Limits{Memory: 5}}},
	{Kind: recMade, Box: "b1", Record: &runtime.Record{ID: "b1", Runtime: "fake", Data: json.RawMessage(`{"v":1}`)}},
	{Kind: recBound, Box: "b1", At: time.Minute},
	{Kind: recState, Box: "b1", State: Suspended, At: time.Hour, Suspended: time.Second},
	{Kind: recCreating, Box: "b2", Meta: &meta{Runtime: "fake", Template: "base@1"}},
	{Kind: recMade, Box: "b2", Record: &runtime.Record{ID: "b2", Runtime: "fake", Data: json.RawMessage(`{}`)}},
	{Kind: recPool, Box: "b2"},
	{Kind: recCreating, Box: "b3", Meta: &meta{Runtime: "fake"}},
	{Kind: recDestroying, Box: "b3"},
	{Kind: recGone, Box: "b3"},
}

func lines(t testing.TB, rs []*record) []byte {
	var out []byte
	for _, r := range rs {
		b, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(b) {
			t.Fatalf("not JSON: %s", b)
		}
		out = append(out, b...)
	}
	return out
}

func mustReplay(t testing.TB, b []byte) *replayed {
	p, err := replay(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestReplay(t *testing.T) {
	p := mustReplay(t, lines(t, sample))
	if p.epoch != 3 || p.run != 4 || p.bootID != "boot" || p.damaged != 0 {
		t.Errorf("header %+v", p)
	}
	if got := slices.Sorted(maps.Keys(p.boxes)); !slices.Equal(got, []string{"b1", "b2"}) {
		t.Fatalf("boxes %v", got)
	}
	b1 := p.boxes["b1"]
	if b1.last != recBound || b1.state != Suspended || b1.meta.Session != "s1" || b1.meta.Started != time.Minute || b1.record == nil || b1.suspended != time.Second {
		t.Errorf("b1 %+v", b1)
	}
	if p.boxes["b2"].last != recPool {
		t.Errorf("b2 %+v", p.boxes["b2"])
	}
}

func TestReplayOfDamage(t *testing.T) {
	whole := lines(t, sample)
	firstMade := bytes.Index(whole, []byte(`"made"`))
	flipped := bytes.Clone(whole)
	flipped[firstMade+1] = 'M'
	for name, tc := range map[string]struct {
		in      []byte
		damaged int
		boxes   int
	}{
		"torn last line":    {whole[:len(whole)-5], 1, 3},
		"flipped bit":       {flipped, 1, 2},
		"junk":              {append([]byte("junk\n\n{}\n"), whole...), 3, 2},
		"nothing":           {nil, 0, 0},
		"newer kind, field": {append(bytes.Clone(whole), newer(t)...), 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustReplay(t, tc.in)
			if p.damaged != tc.damaged || len(p.boxes) != tc.boxes {
				t.Errorf("damaged %d, boxes %d; want %d, %d", p.damaged, len(p.boxes), tc.damaged, tc.boxes)
			}
		})
	}
}

// newer is a record as a later version may write it.
func newer(t *testing.T) []byte {
	body := []byte(`{"v":2,"kind":"migrating","box":"b9","future":{"x":1}`)
	line := fmt.Appendf(body, "%s%08x\"}\n", crcPrefix, crc32.Checksum(body, castagnoli))
	if !json.Valid(line) {
		t.Fatalf("not JSON: %s", line)
	}
	return line
}

func TestReplayIsKeptByCompaction(t *testing.T) {
	kinds := []recordKind{recCreating, recMade, recPool, recClaiming, recBound, recState, recDestroying, recLost, recGone}
	rapid.Check(t, func(t *rapid.T) {
		var rs []*record
		for i := range rapid.IntRange(0, 60).Draw(t, "n") {
			r := &record{
				Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Box: fmt.Sprintf("b%d", rapid.IntRange(0, 5).Draw(t, "box")),
			}
			switch r.Kind {
			case recCreating, recClaiming:
				r.Meta = &meta{Session: fmt.Sprintf("s%d", i), Runtime: "fake"}
			case recMade:
				r.Record = &runtime.Record{ID: r.Box, Data: json.RawMessage(`1`)}
			case recBound:
				r.At = time.Duration(i + 1)
			case recState:
				r.Suspended = time.Duration(i)
				r.State, r.At = rapid.SampledFrom([]State{Live, Suspended, Audit}).Draw(t, "state"), time.Duration(i)
			case recLost:
				r.Cause = BoxLost
			}
			rs = append(rs, r)
		}
		var b []byte
		for _, r := range rs {
			line, _ := r.encode()
			b = append(b, line...)
		}
		before, _ := replay(bytes.NewReader(b))
		b = nil
		for _, r := range before.records() {
			line, _ := r.encode()
			b = append(b, line...)
		}
		after, _ := replay(bytes.NewReader(b))
		for id, x := range before.boxes {
			y := after.boxes[id]
			if y == nil || !x.same(y) {
				t.Fatalf("box %s was\n%+v, became\n%+v", id, x, y)
			}
		}
		if len(before.boxes) != len(after.boxes) {
			t.Fatalf("%d boxes became %d", len(before.boxes), len(after.boxes))
		}
	})
}

// same compares what adoption looks at.
func (j *journaled) same(k *journaled) bool {
	if !reflect.DeepEqual(j.meta, k.meta) || !reflect.DeepEqual(j.record, k.record) || j.last != k.last {
		return false
	}
	return j.last != recBound || j.state == k.state && j.suspended == k.suspended && (j.state == Live || j.stateAt == k.stateAt)
}

func TestJournalFile(t *testing.T) {
	dir := t.TempDir()
	j, p, err := openJournal(dir)
	if err != nil || len(p.boxes) != 0 {
		t.Fatal(p, err)
	}
	if _, _, err := openJournal(dir); err == nil {
		t.Error("two nodes have the data directory")
	}
	for _, r := range sample {
		if err := j.append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, journalName)
	whole, _ := os.ReadFile(path)
	if err := os.WriteFile(path, whole[:len(whole)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	j, p, err = openJournal(dir)
	if err != nil || p.damaged != 1 || len(p.boxes) != 3 {
		t.Fatal(p, err)
	}
	// What is appended after a torn line is whole again.
	if err := j.append(&record{Kind: recGone, Box: "b3"}); err != nil {
		t.Fatal(err)
	}
	if err := j.rewrite(mustReplay(t, lines(t, sample))); err != nil {
		t.Fatal(err)
	}
	if err := j.append(&record{Kind: recGone, Box: "b2"}); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	j, p, err = openJournal(dir)
	if err != nil || p.damaged != 0 || len(p.boxes) != 1 {
		t.Fatal(p, err)
	}
	_ = j.close()
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestJournalCompactsWhileItIsWritten(t *testing.T) {
	j, _, err := openJournal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	long := &meta{Session: strings.Repeat("x", 1000)}
	stop := make(chan struct{})
	done := make(chan int)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- i
				return
			default:
			}
			id := fmt.Sprintf("b%d", i)
			_ = j.append(&record{Kind: recCreating, Box: id, Meta: long})
			if i%10 != 0 {
				_ = j.append(&record{Kind: recGone, Box: id})
			}
		}
	}()
	compacted := false
	for end := time.Now().Add(waitFor); !compacted && time.Now().Before(end); {
		before, _ := os.Stat(j.path())
		if err := j.compact(); err != nil {
			t.Fatal(err)
		}
		after, _ := os.Stat(j.path())
		compacted = !os.SameFile(before, after)
	}
	close(stop)
	n := <-done
	if !compacted {
		t.Fatal("it was never compacted")
	}
	b, _ := os.ReadFile(j.path())
	if p := mustReplay(t, b); p.damaged != 0 || len(p.boxes) != (n+9)/10 {
		t.Errorf("%d boxes, %d damaged; want %d, 0", len(p.boxes), p.damaged, (n+9)/10)
	}
}

func journalHas(t *testing.T, n *Node, text string) bool {
	b, err := os.ReadFile(n.journal.path())
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(text))
}
