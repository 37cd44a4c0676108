package native

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// threads is how many threads the box's PID 1 has; at rest it has one.
func (b *box) threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", b.pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// awaitRest waits until the box rests.
func (b *box) awaitRest(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); b.threads(t) > 1; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to rest")
		}
	}
}

// status is what the agent sees of its own confinement.
const status = `grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|Umask|SigBlk|SigIgn|SigCgt)' /proc/self/status
cat /proc/self/limits /proc/self/oom_score_adj; sed 's/op-[0-9]*/op/' /proc/self/cgroup
ls /proc/self/fd; env | sort; hostname; id; pwd; ls -ln /proc/1/exe 2>&1; head -c1 /proc/1/environ 2>&1; :`

func TestRestChangesNothing(t *testing.T) {
	m := newMachine(t)
	b := m.create(func(c *runtime.Config) { c.Env = []string{"SECRET=s3"} })
	g := guestOf(t, b)
	before := map[string]string{}
	for _, user := range []string{"user", "root"} {
		before[user] = out(t, g, user, status)
	}
	once := guestproto.ExecRequest{OpID: "once", Script: "echo ran >> /workspace/ran; cat /workspace/ran"}
	if r, err := g.Run(ctx(t), once); err != nil || string(r.Stdout.Head) != "ran\n" {
		t.Fatalf("%+v %v", r, err)
	}
	fds := 0
	for life := range 4 {
		g.Close()
		b.awaitRest(t)
		g = guestOf(t, b)
		for _, user := range []string{"user", "root"} {
			if got := out(t, g, user, status); got != before[user] {
				t.Errorf("life %d: as %s\n%s\nbefore\n%s", life, user, got, before[user])
			}
		}
		if r, err := g.Run(ctx(t), once); err != nil || string(r.Stdout.Head) != "ran\n" {
			t.Errorf("an op that has ended ran again: %+v %v", r, err)
		}
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.pid))
		if err != nil {
			t.Fatal(err)
		}
		if life == 1 {
			fds = len(list)
		} else if life > 1 && len(list) > fds+8 { // a fast op makes another leaf, up to four
			t.Errorf("life %d: %d descriptors, %d before", life, len(list), fds)
		}
	}
	// The limits and what tells them apart are as they were.
	if r := run(t, g, "user", "tail /dev/zero"); !r.OOM || r.Limit != guestproto.LimitMemory {
		t.Errorf("a command that ran out of memory: %+v", r)
	}
	if err := b.Destroy(ctx(t)); err != nil {
		t.Error(err)
	}
	m.clean()
}

func TestRestingBoxIsDestroyed(t *testing.T) {
	m := newMachine(t)
	b := m.create()
	guestOf(t, b).Close()
	b.awaitRest(t)
	if err := b.Freeze(ctx(t)); err != nil {
		t.Error(err)
	}
	if err := b.Thaw(ctx(t)); err != nil {
		t.Error(err)
	}
	if err := b.Destroy(ctx(t)); err != nil {
		t.Error(err)
	}
	m.clean()
}

func TestBoxThatIsUsedStaysAwake(t *testing.T) {
	m := newMachine(t)
	working, connected := m.create(), m.create()
	g := guestOf(t, working)
	background(t, g, "sleep 3600")
	g.Close()
	guestOf(t, connected)
	pooled := m.create(func(c *runtime.Config) { c.Pooled = true })
	time.Sleep(4 * time.Second) // twice what makes an idle guest rest
	for name, b := range map[string]*box{"with a process": working, "with a connection": connected, "of the pool": pooled} {
		if n := b.threads(t); n == 1 {
			t.Errorf("the box %s rests", name)
		}
	}
}

// Whoever connects in the very moment in which a guest goes to rest is served.
func TestConnectionAtTheMomentOfRest(t *testing.T) {
	const boxes, rounds = 6, 4
	const rest = 2 * time.Second // after the last connection's end
	m := newMachine(t)
	var wg sync.WaitGroup
	for i := range boxes {
		b := m.create()
		wg.Go(func() {
			for round := range rounds {
				conn, err := b.Dial(ctx(t))
				if err != nil {
					t.Error(err)
					return
				}
				g, err := guestclient.New(ctx(t), conn)
				if err != nil {
					t.Errorf("box %d, round %d: %v", i, round, err)
					return
				}
				r, err := g.Run(ctx(t), guestproto.ExecRequest{OpID: fmt.Sprintf("r%d", round), Argv: []string{"/bin/sh", "-c", "echo here"}})
				g.Close()
				if err != nil || strings.TrimSpace(string(r.Stdout.Head)) != "here" {
					t.Errorf("box %d, round %d: %+v %v", i, round, r, err)
					return
				}
				time.Sleep(rest + time.Duration(i-boxes/2+round)*700*time.Microsecond)
			}
		})
	}
	wg.Wait()
}
