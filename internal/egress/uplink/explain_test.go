package uplink

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// told makes one request over TLS, as a program of the box does that trusts the project's authority, and gives the answer.
func (b *testBox) told(own []byte, addr, name string, alpn []string, head string) (*http.Response, string, error) {
	c, err := b.dial("tcp4", addr)
	if err != nil {
		return nil, "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(own)
	t := tls.Client(c, &tls.Config{ServerName: name, RootCAs: roots, NextProtos: alpn})
	if _, err := io.WriteString(t, head); err != nil {
		return nil, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(t), nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

func explainer(port string) string { return policy.Explainer.String() + ":" + port }

// A box that trusts its project's authority is told why a name is refused, wherever its client finds out; nothing leaves the
// node for it.
func TestRefusedNamesAreExplained(t *testing.T) {
	w, own := newTrusted(t)
	for _, n := range []string{"good.test", "evil.test"} {
		w.DNS.Set(n, egresstest.GoodAddr)
	}
	w.HTTP(egresstest.GoodAddr+":443", true, http.HandlerFunc(egresstest.Hello))
	b := w.attachAs(whitelist(t, []string{"good.test"}), true)
	b.must("good.test")
	w.DNS.Asked()
	before := w.Uplink()

	for _, name := range []string{"evil.test", "Deep.Below.Evil.Test", strings.Repeat("a.", 100) + "evil.test"} {
		if a := b.must(name); a != policy.Explainer {
			t.Errorf("%s: %v", name, a)
		}
	}
	for _, name := range []string{"single", "printer.local", "x.invalid", "y.localhost", "1.0.0.10.in-addr.arpa"} {
		if a, err := b.lookup(name); !notFound(err) {
			t.Errorf("%s: %v %v", name, a, err)
		}
	}
	long := strings.Repeat("a.", 100) + "evil.test"
	for _, tc := range []struct {
		what, addr, name string
		alpn             []string
		reason           policy.Reason
	}{
		{"where the name leads", explainer("443"), "evil.test", []string{"h2", "http/1.1"}, policy.NameNotAllowed},
		{"without ALPN", explainer("8443"), "evil.test", nil, policy.NameNotAllowed},
		{"a long name", explainer("443"), long, nil, policy.NameNotAllowed},
		{"an allowed name there", explainer("443"), "good.test", nil, policy.NameUnpinned},
		{"at another name's address", egresstest.GoodAddr + ":443", "evil.test", nil, policy.ServerNameRefused},
	} {
		resp, body, err := b.told(own, tc.addr, tc.name, tc.alpn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if err != nil {
			t.Errorf("%s: %v", tc.what, err)
			continue
		}
		for _, text := range []string{resp.Status, body} {
			if !strings.Contains(text, "the egress policy") || !strings.Contains(text, tc.name) || !strings.Contains(text, string(tc.reason)) || !strings.Contains(text, "dsec net explain s") {
				t.Errorf("%s: %q", tc.what, text)
			}
		}
		if resp.StatusCode != 403 {
			t.Errorf("%s: %s", tc.what, resp.Status)
		}
		w.find(tc.what, func(d egress.Decision) bool {
			return d.Verdict == egress.Deny && d.Name == tc.name && d.Reason == tc.reason && d.Port > 0
		})
	}
	for _, tc := range []struct {
		what, name string
		alpn       []string
		head       string
	}{
		{"no name", "", nil, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"HTTP/2 alone", "evil.test", []string{"h2"}, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"no HTTP inside", "evil.test", nil, "* IDLE\r\n\r\n"},
	} {
		if resp, _, err := b.told(own, explainer("443"), tc.name, tc.alpn, tc.head); err == nil {
			t.Errorf("%s: %s", tc.what, resp.Status)
		}
	}
	if _, body, err := b.told(own, explainer("443"), "evil.test", nil, "GET /x HTTP/1.1\r\nHost: x\r\nAccept: application/vnd.npm.install-v1+json; q=1.0, */*\r\n\r\n"); err != nil {
		t.Error(err)
	} else if m := map[string]string{}; json.Unmarshal([]byte(body), &m) != nil || !strings.Contains(m["error"], "the egress policy refuses this request to evil.test") {
		t.Errorf("JSON: %s", body)
	}
	if resp, body, err := b.told(own, explainer("443"), "evil.test", nil, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 100000)); err != nil || resp.StatusCode != 403 || body == "" {
		t.Errorf("with a body: %v", err)
	}
	// Everything else at the address is refused at the first packet.
	for _, port := range []string{"22", "25", "81", "5432"} {
		if _, err := b.dial("tcp4", explainer(port)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("port %s: %v", port, err)
		}
	}
	if err := b.refusedUDP(explainer("443")); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("UDP: %v", err)
	}
	if n := w.Uplink() - before; n != 0 {
		t.Errorf("%d packets left the node", n)
	}
	if asked := w.DNS.Asked(); len(asked) != 0 {
		t.Errorf("the resolver was asked %v", asked)
	}

	// A policy that names it is in force at once: no answer is kept.
	if err := b.Switch(t.Context(), whitelist(t, []string{"evil.test"})); err != nil {
		t.Fatal(err)
	}
	if a := b.must("evil.test"); a != netip.MustParseAddr(egresstest.GoodAddr) {
		t.Errorf("after the switch: %v", a)
	}
	if a := b.must("good.test"); a != policy.Explainer {
		t.Errorf("after the switch: %v", a)
	}
}

// A box that does not trust the authority is refused as before.
func TestUntrustingBoxIsRefusedAsBefore(t *testing.T) {
	w, _ := newTrusted(t)
	b := w.attach(whitelist(t, []string{"good.test"}))
	if a, err := b.lookup("evil.test"); !notFound(err) {
		t.Errorf("%v %v", a, err)
	}
	for _, port := range []string{"80", "443"} {
		if _, err := b.dial("tcp4", explainer(port)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("port %s: %v", port, err)
		}
	}
}

// Whoever asks to be told all the time is reset.
func TestExplanationsAreBounded(t *testing.T) {
	w, own := newTrusted(t)
	b := w.attachAs(whitelist(t, []string{"good.test"}), true)
	start, told := time.Now(), 0
	for i := range 200 {
		if _, _, err := b.told(own, explainer("443"), fmt.Sprintf("n%d.evil.test", i), nil, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err == nil {
			told++
		} else if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	if most := 41 + int(took.Seconds()*20); told > most || told < 20 {
		t.Errorf("%d of 200 were told in %v", told, took)
	}
	t.Logf("%d of 200 in %v", told, took)
}
