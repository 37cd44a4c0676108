// Package egresstest is a small internet for tests: the test process runs in a network namespace of
// its own, "the node", whose uplink leads to another one, "the world", with a name server and servers
// that the tests make. Nothing leaves the machine.
package egresstest

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Addresses of the world.
const (
	NodeAddr     = "203.0.113.1"
	ResolverAddr = "203.0.113.53"
	GoodAddr     = "203.0.113.10"
	EvilAddr     = "203.0.113.11"
	OtherAddr    = "203.0.113.12"
	ServiceAddr  = "10.66.0.5" // private
	MetadataAddr = "169.254.169.254"
	uplink       = "dsec-up"
	variable     = "DSEC_EGRESSTEST_WORLD"
)

// Main runs a package's tests in the node's namespace, and removes both namespaces afterwards.
// Where namespaces cannot be made, the tests run here and New skips them. More addresses of the
// world may be given.
func Main(m *testing.M, run func(m *testing.M) int, addrs ...string) {
	if os.Getenv(variable) != "" || missing() != "" {
		os.Exit(run(m))
	}
	os.Exit(parent(addrs))
}

func missing() string {
	if os.Geteuid() != 0 {
		return "network namespaces need root"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "ip (iproute2) is not installed"
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "/dev/net/tun is not there"
	}
	return ""
}

func ip(args string) error {
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

func parent(addrs []string) int {
	node, world := fmt.Sprintf("dsec-node-%d", os.Getpid()), fmt.Sprintf("dsec-world-%d", os.Getpid())
	defer func() {
		_ = ip("netns del " + node)
		_ = ip("netns del " + world)
	}()
	steps := []string{
		"netns add " + node, "netns add " + world,
		"-n " + node + " link add " + uplink + " type veth peer name dsec-peer netns " + world,
		"-n " + node + " link set lo up", "-n " + world + " link set lo up",
	}
	for _, s := range steps {
		if err := ip(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	for ns, dev := range map[string]string{node: uplink, world: "dsec-peer"} {
		if err := within(ns, func() error {
			// No packet without a cause: neighbours are not probed again after a while.
			if err := os.WriteFile("/proc/sys/net/ipv4/neigh/"+dev+"/delay_first_probe_time", []byte("3600"), 0); err != nil {
				return err
			}
			return os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/disable_ipv6", []byte("1"), 0)
		}); err != nil && !os.IsNotExist(err) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	steps = []string{"-n " + node + " addr add " + NodeAddr + "/24 dev " + uplink, "-n " + node + " link set " + uplink + " up", "-n " + world + " link set dsec-peer up"}
	for _, a := range append([]string{ResolverAddr, GoodAddr, EvilAddr, OtherAddr, ServiceAddr, MetadataAddr}, addrs...) {
		steps = append(steps, "-n "+world+" addr add "+a+"/32 dev dsec-peer")
	}
	steps = append(steps, "-n "+node+" route add default dev "+uplink, "-n "+world+" route add "+NodeAddr+"/32 dev dsec-peer")
	for _, s := range steps {
		if err := ip(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return child(node, world)
}

// child runs this program again in the node's namespace.
func child(node, world string) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), variable+"="+world)
	if err := within(node, cmd.Start); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := cmd.Wait(); err != nil {
		if code := cmd.ProcessState.ExitCode(); code > 0 {
			return code
		}
		return 1
	}
	return 0
}

// within runs fn on a thread in a named namespace.
func within(name string, fn func() error) error {
	f, err := os.Open("/run/netns/" + name)
	if err != nil {
		return err
	}
	defer f.Close()
	return Inside(f, fn)
}

// Inside runs fn on a thread in the namespace; sockets that fn makes stay in it.
func Inside(ns *os.File, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		// runtime.Goexit (t.Fatal) leaves the thread locked: it ends with the goroutine.
		finished := false
		defer func() {
			if !finished {
				done <- fmt.Errorf("the function did not return")
			}
		}()
		err = fn()
		finished = true
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
