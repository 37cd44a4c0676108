// Package credential keeps what is needed to add a secret to a box's requests outside the box: the
// operator's secrets, and one certificate authority a project, which the project's boxes trust, so
// that TLS can be opened for the hosts of rules that name a secret, and clients of refused names told why, and for no others.
package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/secretfile"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 7 * 24 * time.Hour
	maxLeafs = 1024
	slack    = time.Hour // clocks differ

	maxCommonName = 64 // of a certificate; what clients compare is the list of names
)

// Authority signs certificates for one project. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte

	mu    sync.Mutex
	leafs map[string]*tls.Certificate
}

// openAuthority reads a project's authority, or makes it. Its key stays in a file that only the daemon's user reads.
func openAuthority(dir, project string) (*Authority, error) {
	path := filepath.Join(dir, "ca.pem")
	data, err := secretfile.Read(path, func() ([]byte, error) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		return newAuthority(project)
	})
	if err != nil {
		return nil, fmt.Errorf("authority of project %s: %w", project, err)
	}
	a, err := parseAuthority(data)
	if err != nil {
		return nil, fmt.Errorf("authority of project %s: %s: %w", project, path, err)
	}
	return a, nil
}

func newAuthority(project string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "DSec egress, project " + project},
		NotBefore: now.Add(-slack), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k})...), nil
}

func parseAuthority(data []byte) (*Authority, error) {
	cert, rest := pem.Decode(data)
	key, _ := pem.Decode(rest)
	if cert == nil || key == nil {
		return nil, errors.New("a certificate and its key are expected")
	}
	c, err := x509.ParseCertificate(cert.Bytes)
	if err != nil {
		return nil, err
	}
	k, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	if err != nil {
		return nil, err
	}
	ec, ok := k.(*ecdsa.PrivateKey)
	if !ok || !ec.PublicKey.Equal(c.PublicKey) {
		return nil, errors.New("the key is not the certificate's")
	}
	return &Authority{cert: c, key: ec, pem: pem.EncodeToMemory(cert), leafs: map[string]*tls.Certificate{}}, nil
}

// PEM is the certificate that boxes trust.
func (a *Authority) PEM() []byte { return a.pem }

// Certificate gives one for a host.
func (a *Authority) Certificate(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.leafs[host]; ok && time.Until(c.Leaf.NotAfter) > leafLife/2 {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	subject := pkix.Name{CommonName: host}
	if len(host) > maxCommonName {
		subject = pkix.Name{}
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: subject, DNSNames: []string{host},
		NotBefore: now.Add(-slack), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if len(a.leafs) >= maxLeafs {
		clear(a.leafs)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	a.leafs[host] = c
	return c, nil
}

func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}
