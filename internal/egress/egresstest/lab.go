package egresstest

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/egress"
)

// Lab is the world as one test sees it.
type Lab struct {
	t     testing.TB
	world *os.File
	DNS   *Resolver
	CA    *Authority
	Sink  *Sink
}

// New gives the world to a test, with a name server and an authority; it skips where Main could not make
// one.
func New(t testing.TB) *Lab {
	t.Helper()
	name := os.Getenv(variable)
	if name == "" {
		t.Skip(missing())
	}
	f, err := os.Open("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	l := &Lab{t: t, world: f, CA: newAuthority(t), Sink: &Sink{}}
	l.DNS = newResolver(t, l)
	return l
}

// Config is that of a node in the lab.
func (l *Lab) Config() egress.Config {
	return egress.Config{
		Resolvers: []netip.AddrPort{netip.MustParseAddrPort(ResolverAddr + ":53")}, Sink: l.Sink, Roots: l.CA.Pool,
	}
}

// Listen listens in the world.
func (l *Lab) Listen(addr string) net.Listener {
	l.t.Helper()
	var ln net.Listener
	l.inWorld(func() (err error) { ln, err = net.Listen("tcp4", addr); return err })
	l.t.Cleanup(func() { ln.Close() })
	return ln
}

// ListenPacket takes datagrams in the world.
func (l *Lab) ListenPacket(addr string) net.PacketConn {
	l.t.Helper()
	var pc net.PacketConn
	l.inWorld(func() (err error) { pc, err = net.ListenPacket("udp4", addr); return err })
	l.t.Cleanup(func() { pc.Close() })
	return pc
}

// World runs fn on a thread in the world's namespace, as Netns.Do does in a box's.
func (l *Lab) World(fn func() error) error { return Inside(l.world, fn) }

func (l *Lab) inWorld(fn func() error) {
	l.t.Helper()
	if err := Inside(l.world, fn); err != nil {
		l.t.Fatal(err)
	}
}

// Handle serves every connection of an address by fn, until the test ends.
func (l *Lab) Handle(addr string, fn func(net.Conn)) {
	l.t.Helper()
	ln := l.Listen(addr)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); fn(c) }()
		}
	})
	l.t.Cleanup(func() { ln.Close(); wg.Wait() })
}

// Uplink counts the packets that the node has sent to the world.
func (l *Lab) Uplink() int64 {
	l.t.Helper()
	f, err := os.Open("/proc/thread-self/net/dev")
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(s.Text()), uplink+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[9], 10, 64)
			if err != nil {
				l.t.Fatal(err)
			}
			return n
		}
	}
	l.t.Fatal("the uplink is not there")
	return 0
}

// Netns is a network namespace without a process, as a box has it: loopback alone.
type Netns struct {
	*os.File
	t testing.TB
}

// Box makes one; it goes with the test.
func (l *Lab) Box() *Netns {
	l.t.Helper()
	var f *os.File
	err := Inside(l.world, func() (err error) { // which comes home afterwards
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { f.Close() })
	return &Netns{File: f, t: l.t}
}

// Open gives the namespace anew, as an Attachment wants it.
func (n *Netns) Open() (*os.File, error) {
	fd, err := unix.FcntlInt(n.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netns"), nil
}

// Do runs fn on a thread in the namespace.
func (n *Netns) Do(fn func() error) error { return Inside(n.File, fn) }

// Sink keeps decisions.
type Sink struct {
	mu  sync.Mutex
	all []egress.Decision
}

// Record implements egress.Sink.
func (s *Sink) Record(d egress.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

// Take gives what was recorded since the last Take.
func (s *Sink) Take() []egress.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.all
	s.all = nil
	return out
}
