package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// stream serves zeros without end on a port of an address.
func (w *world) stream(addr string) {
	w.Handle(addr, func(c net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
}

// idle serves connections on which nothing happens until the client ends them.
func (w *world) idle(addr string) { w.Handle(addr, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) }

func TestSwitchCutsStreams(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.DNS.Set("kept.test", egresstest.OtherAddr)
	w.stream(egresstest.GoodAddr + ":7000")
	w.idle(egresstest.OtherAddr + ":7000")
	b := w.attach(whitelist(t, []string{"good.test:7000", "kept.test:7000"}))
	cut, err := b.dial("tcp4", b.must("good.test").String()+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	kept, err := b.dial("tcp4", b.must("kept.test").String()+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	buf := make([]byte, 1<<20)
	if _, err := io.ReadFull(cut, buf); err != nil {
		t.Fatal(err)
	}
	w.Sink.Take()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, cut)
		ended <- err
	}()
	start := time.Now()
	if err := b.Switch(t.Context(), whitelist(t, []string{"kept.test:7000"})); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v", err)
	}
	if _, err := b.dial("tcp4", egresstest.GoodAddr+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v", err)
	}
	all := time.Since(start)
	t.Logf("switch %v, everything %v", took, all)
	if all > quick {
		t.Errorf("the switch took %v", all)
	}
	if _, err := kept.Write([]byte("still here")); err != nil {
		t.Error(err)
	}
	d := w.find("the cut", func(d egress.Decision) bool { return d.Kind == egress.Close && d.Reason == policy.PolicyChanged })
	if d.Name != "good.test" || d.Received < 1<<20 || d.Duration <= 0 {
		t.Errorf("%+v", d)
	}
	if s := b.Stats(); s.Open != 1 || s.Pins != 1 {
		t.Errorf("%+v", s)
	}
}

// A network that ends without a word, as a killed daemon does, leaves the device; the next one takes over.
func TestNextDaemonTakesOver(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.idle(egresstest.GoodAddr + ":7000")
	w.Handle(egresstest.GoodAddr+":7001", func(c net.Conn) { _, _ = io.Copy(c, c) })
	p := whitelist(t, []string{"good.test:7000-7001"})
	b := w.attach(p)
	addr := b.must("good.test").String()
	reader, err := b.dial("tcp4", addr+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ended := make(chan error, 1)
	go func() { _, err := reader.Read(make([]byte, 1)); ended <- err }()

	// The device loses its reader before the flows are told.
	if err := b.Link.(*box).stack.Close(false); err != nil {
		t.Fatal(err)
	}
	// The kernel tells the loss of the carrier a moment later; then new connections fail at once.
	unreachable := func() error {
		return b.Do(func() error {
			c, err := net.DialTimeout("tcp4", addr+":7001", 100*time.Millisecond)
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	start := time.Now()
	for !errors.Is(unreachable(), syscall.ENETUNREACH) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("without a daemon connections do not fail")
		}
	}
	t.Logf("unreachable after %v", time.Since(start))
	_ = b.Link.Close(false)

	next := New(w.Config())
	defer next.Close()
	start = time.Now()
	l, err := next.Attach(t.Context(), egress.Attachment{Box: egress.Identity{Box: "b"}, Netns: b.Netns.Open, Policy: p, Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(false)
	t.Logf("taken over in %v", time.Since(start))
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the old reader: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the old reader hangs")
	}
	c, err := (&testBox{Netns: b.Netns, Link: l, w: w}).dial("tcp4", (&testBox{Netns: b.Netns, Link: l, w: w}).must("good.test").String()+":7001")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestUDPWhereNamed(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("ntp.test", egresstest.GoodAddr)
	pc := w.ListenPacket(egresstest.GoodAddr + ":123")
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(append([]byte("re:"), buf[:n]...), from)
		}
	}()
	b := w.attach(whitelist(t, []string{"ntp.test:123/udp"}))
	c, err := b.dial("udp4", b.must("ntp.test").String()+":123")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	for _, text := range []string{"one", "two", strings.Repeat("x", 1400)} {
		_, _ = c.Write([]byte(text))
		buf := make([]byte, 2000)
		n, err := c.Read(buf)
		if err != nil || string(buf[:n]) != "re:"+text {
			t.Errorf("%q, %v", buf[:n], err)
		}
	}
	if err := b.Switch(t.Context(), whitelist(t, []string{"ntp.test"})); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("after"))
	if _, err := c.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the switch: %v", err)
	}
	d := w.find("the flow's end", func(d egress.Decision) bool { return d.Kind == egress.Close && d.Protocol == policy.UDP })
	if d.Sent == 0 || d.Received <= d.Sent || d.Reason != policy.PolicyChanged {
		t.Errorf("%+v", d)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("*.wild.test", egresstest.GoodAddr)
	w.idle(egresstest.GoodAddr + ":7000")
	w.stream(egresstest.GoodAddr + ":7001")
	base := func(l policy.Limits) *policy.Policy {
		return compile(t, policy.Spec{Mode: policy.Whitelist, Domains: []policy.Domain{{Name: "*.wild.test", Ports: "7000-7001"}}, IPs: []policy.Range{{CIDR: egresstest.GoodAddr}}, Limits: l})
	}
	t.Run("connections", func(t *testing.T) {
		b := w.attach(base(policy.Limits{Connections: 3}))
		var open []net.Conn
		for range 3 {
			c, err := b.dial("tcp4", egresstest.GoodAddr+":7000")
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		if _, err := b.dial("tcp4", egresstest.GoodAddr+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the fourth: %v", err)
		}
		w.find("it", func(d egress.Decision) bool { return d.Reason == policy.LimitConnections })
		for _, c := range open {
			c.Close()
		}
		for end := time.Now().Add(5 * time.Second); b.Stats().Open > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the flows do not end")
			}
		}
		if c, err := b.dial("tcp4", egresstest.GoodAddr+":7000"); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
	})
	t.Run("connects a second", func(t *testing.T) {
		b := w.attach(base(policy.Limits{ConnectsPerSecond: 5}))
		refused := 0
		for range 20 {
			c, err := b.dial("tcp4", egresstest.GoodAddr+":7000")
			if errors.Is(err, syscall.ECONNREFUSED) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			} else {
				c.Close()
			}
		}
		if refused < 5 || refused > 10 {
			t.Errorf("%d of 20 were refused", refused)
		}
		w.find("it", func(d egress.Decision) bool { return d.Reason == policy.LimitConnects })
	})
	t.Run("names", func(t *testing.T) {
		b := w.attach(base(policy.Limits{DNSNamesPerMinute: 4}))
		w.DNS.Asked()
		for i := range 30 {
			_, _ = b.lookup(string(rune('a'+i%26)) + strings.Repeat("x", i/26) + ".wild.test")
		}
		if asked := w.DNS.Asked(); len(asked) > 4 {
			t.Errorf("%d names reached the resolver", len(asked))
		}
		w.find("it", func(d egress.Decision) bool { return d.Reason == policy.LimitNames })
		if _, err := b.lookup("a.wild.test"); err != nil {
			t.Errorf("a name of this minute: %v", err)
		}
	})
	t.Run("queries", func(t *testing.T) {
		b := w.attach(base(policy.Limits{DNSPerSecond: 2}))
		for range 12 {
			_, _ = b.lookup("a.wild.test")
		}
		w.find("it", func(d egress.Decision) bool { return d.Reason == policy.LimitDNS })
	})
	t.Run("bytes", func(t *testing.T) {
		b := w.attach(base(policy.Limits{Bytes: 3 << 20}))
		c, err := b.dial("tcp4", egresstest.GoodAddr+":7001")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		n, err := io.Copy(io.Discard, c)
		if n > 6<<20 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d bytes, %v", n, err)
		}
		w.find("it", func(d egress.Decision) bool { return d.Kind == egress.Close && d.Reason == policy.LimitBytes })
		if _, err := b.dial("tcp4", egresstest.GoodAddr+":7001"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("another: %v", err)
		}
	})
	t.Run("bandwidth", func(t *testing.T) {
		b := w.attach(base(policy.Limits{Bandwidth: 4 << 20}))
		c, err := b.dial("tcp4", egresstest.GoodAddr+":7001")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		start := time.Now()
		if _, err := io.CopyN(io.Discard, c, 6<<20); err != nil {
			t.Fatal(err)
		}
		// 1 MiB of burst, up to 2 MiB on their way in buffers, the rest at 4 MiB a second.
		if d := time.Since(start); d < 600*time.Millisecond || d > 10*time.Second {
			t.Errorf("6 MiB took %v", d)
		}
	})
}

// fakeSecrets signs with the lab's authority and knows one secret.
type fakeSecrets struct{ *egresstest.Authority }

func (fakeSecrets) Credential(project, name string) (egress.Credential, bool) {
	return egress.Credential{Header: "Authorization", Value: "Bearer s3cret"}, project == "p" && name == "key"
}

func (f fakeSecrets) Certificate(string, string) (*tls.Certificate, error) {
	return f.Authority.Certificate("api.test")
}

func TestCredentialIsAddedOutside(t *testing.T) {
	w := webWorld(t)
	w.DNS.Set("api.test", egresstest.GoodAddr)
	cfg := w.Config()
	cfg.Credentials = fakeSecrets{w.CA}
	w.net = New(cfg)
	defer w.net.Close()
	b := w.attach(compile(t, policy.Spec{Mode: policy.Whitelist, Domains: []policy.Domain{{Name: "api.test", Credential: "key"}, {Name: "good.test"}, {Name: "also.test", Credential: "unknown"}}}))
	for _, scheme := range []string{"https", "http"} {
		code, body := get(t, b.client(), scheme+"://api.test/v1")
		if code != 200 || !strings.Contains(body, "Authorization: Bearer s3cret") || !strings.Contains(body, "host api.test") {
			t.Errorf("%s: %d %s", scheme, code, body)
		}
		if _, body := get(t, b.client(), scheme+"://good.test/"); strings.Contains(body, "s3cret") {
			t.Errorf("%s: another host got the secret: %s", scheme, body)
		}
	}
	if code, body := get(t, b.client(), "http://also.test/"); code != 403 || !strings.Contains(body, "credential-missing") {
		t.Errorf("%d %s", code, body)
	}
	// Inside the opened TLS no other host may be asked for, and the box's own header does not count.
	req, _ := http.NewRequest(http.MethodGet, "https://api.test/", nil)
	req.Header.Set("Authorization", "Bearer forged")
	resp, err := b.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if strings.Contains(string(body), "forged") {
		t.Errorf("the box's header was passed on: %s", body)
	}
	req.Host = "good.test"
	if resp, err = b.client().Do(req); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 403 {
		t.Errorf("another host inside: %d", resp.StatusCode)
	}
	used := false
	for _, d := range w.Sink.Take() {
		if strings.Contains(d.Detail+d.Name+d.Credential+d.Rule, "s3cret") {
			t.Errorf("the secret is in a record: %+v", d)
		}
		used = used || d.Credential == "key" && d.Kind == egress.Request && d.Verdict == egress.Allow
	}
	if !used {
		t.Error("the use is not recorded")
	}
}

func TestPreflight(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.DNS.Set("down.test", egresstest.OtherAddr)
	w.DNS.Set("inside.test", egresstest.ServiceAddr)
	w.idle(egresstest.GoodAddr + ":443")
	p := whitelist(t, []string{"good.test", "*.wild.test", "gone.test", "down.test:9/tcp", "inside.test"})
	got, err := w.net.Preflight(t.Context(), p, true)
	if err == nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []policy.Reason{"", policy.NoSuchName, policy.DialFailed, policy.AddressPrivate} {
		if got[i].Reason != want {
			t.Errorf("%+v, want %q", got[i], want)
		}
	}
	for _, text := range []string{"gone.test", "down.test", "inside.test", "10.66.0.5"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not name %s", err, text)
		}
	}
	if got, err := w.net.Preflight(t.Context(), whitelist(t, []string{"good.test"}), false); err != nil || got[0].Addrs[0].String() != egresstest.GoodAddr {
		t.Errorf("%+v, %v", got, err)
	}
	// What the preflight found holds for the box when the resolver is away later.
	found, _ := w.net.Preflight(t.Context(), whitelist(t, []string{"good.test"}), false)
	w.DNS.SetDead(true)
	fresh := New(w.Config())
	defer fresh.Close()
	ns := w.Box()
	l, err := fresh.Attach(context.Background(), egress.Attachment{Box: egress.Identity{Box: "r"}, Netns: ns.Open, Policy: whitelist(t, []string{"good.test"}), Resolved: found})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(false)
	b := &testBox{Netns: ns, Link: l, w: w}
	if a, err := b.lookup("good.test"); err != nil || a[0].Unmap().String() != egresstest.GoodAddr {
		t.Errorf("%v, %v", a, err)
	}
}
