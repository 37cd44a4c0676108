package egresstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Authority signs certificates of the world's servers.
type Authority struct {
	Pool *x509.CertPool
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "dsec test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &Authority{Pool: pool, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert: cert, key: key}
}

// Certificate signs one for a host, whatever it is.
func (a *Authority) Certificate(host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// ServerTLS answers for any name.
func (a *Authority) ServerTLS() *tls.Config {
	return &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return a.Certificate(h.ServerName) }}
}

// HTTP serves h on an address, over TLS when secure.
func (l *Lab) HTTP(addr string, secure bool, h http.Handler) {
	l.t.Helper()
	ln := l.Listen(addr)
	if secure {
		ln = tls.NewListener(ln, l.CA.ServerTLS())
	}
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) })
	l.t.Cleanup(func() { _ = s.Close(); wg.Wait() })
}

// Hello answers every request with the server's address, the request's Host and its headers.
func Hello(w http.ResponseWriter, r *http.Request) {
	addr := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "at %s host %s %s %s body %d\n", addr, r.Host, r.Method, r.URL, len(body))
	for k, v := range r.Header {
		fmt.Fprintf(w, "%s: %s\n", k, strings.Join(v, ", "))
	}
}

// Resolver is the world's name server.
type Resolver struct {
	mu    sync.Mutex
	names map[string][]netip.Addr
	https map[string][]byte // ECHConfigList by name
	asked []string
	dead  bool
}

func newResolver(t testing.TB, l *Lab) *Resolver {
	r := &Resolver{names: map[string][]netip.Addr{}, https: map[string][]byte{}}
	pc := l.ListenPacket(ResolverAddr + ":53")
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if out := r.answer(buf[:n]); out != nil {
				_, _ = pc.WriteTo(out, from)
			}
		}
	})
	t.Cleanup(func() { pc.Close(); wg.Wait() })
	return r
}

// Set gives a name its addresses; *.name is for every name below it.
func (r *Resolver) Set(name string, addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[name] = nil
	for _, a := range addrs {
		r.names[name] = append(r.names[name], netip.MustParseAddr(a))
	}
}

// SetECH publishes keys for encrypted hellos.
func (r *Resolver) SetECH(name string, list []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.https[name] = list
}

// SetDead makes it answer nothing.
func (r *Resolver) SetDead(dead bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = dead
}

// Asked gives the questions since the last call, as "A name".
func (r *Resolver) Asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.asked
	r.asked = nil
	return out
}

func (r *Resolver) answer(b []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(b) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, strings.TrimPrefix(q.Type.String(), "Type")+" "+name)
	if r.dead {
		return nil
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 60}
	addrs, ok := r.names[name]
	if _, parent, below := strings.Cut(name, "."); !ok && below {
		addrs, ok = r.names["*."+parent]
	}
	if list := r.https[name]; q.Type == dnsmessage.TypeHTTPS && list != nil {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.HTTPSResource{SVCBResource: dnsmessage.SVCBResource{
			Priority: 1, Target: dnsmessage.MustNewName("."), Params: []dnsmessage.SVCParam{{Key: dnsmessage.SVCParamECH, Value: slices.Clone(list)}}}}})
	}
	if q.Type == dnsmessage.TypeA {
		for _, a := range addrs {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		}
	}
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}
