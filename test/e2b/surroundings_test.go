package e2b

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// wildcard is the domain whose names a deployment's DNS would point at the server. The runners resolve it.
const wildcard = "dsec.test"

// surroundings are what an operator puts around a server: a proxy that ends TLS for the names of the
// sandboxes, a registry of images, and a proxy for the clients' way out.
type surroundings struct {
	dir, ca  string
	config   string // of the server
	tls      *httptest.Server
	proxy    *httptest.Server
	registry *httptest.Server
	target   *url.URL
}

func surround() (*surroundings, error) {
	dir, err := os.MkdirTemp("", "dsec-conformance-ca-")
	if err != nil {
		return nil, err
	}
	s := &surroundings{dir: dir, ca: filepath.Join(dir, "ca.pem"), target: &url.URL{}}
	quiet := log.New(io.Discard, "", 0)
	s.tls = httptest.NewUnstartedServer(duplex(&httputil.ReverseProxy{
		Rewrite:  func(p *httputil.ProxyRequest) { p.SetURL(s.target); p.Out.Host = p.In.Host },
		ErrorLog: quiet, FlushInterval: -1,
	}))
	cert, err := certificate()
	if err != nil {
		return nil, err
	}
	s.tls.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.tls.Config.ErrorLog = quiet
	s.tls.StartTLS()
	s.proxy = httptest.NewServer(http.HandlerFunc(forward))
	s.registry = httptest.NewServer(locked(registry.New(registry.Logger(quiet))))
	// Listed, because it is at no public address; other registries stay as they are.
	s.config = filepath.Join(dir, "dsec.yaml")
	at := s.registry.Listener.Addr().String()
	if err := os.WriteFile(s.config, fmt.Appendf(nil, "registry_mirrors:\n- {registry: %q, mirror: %q}\n", at, at), 0o644); err != nil {
		return nil, err
	}
	return s, os.WriteFile(s.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o644)
}

// duplex lets an answer begin before the request has been read to its end, as nginx does. Go's server closes
// the request's body otherwise, and the proxy's transport, about to look for its end, breaks the answer off.
func duplex(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is so without
		next.ServeHTTP(w, r)
	})
}

func (s *surroundings) pointAt(server string) { u, _ := url.Parse(server); *s.target = *u }

// domain has the port of the TLS proxy, as getHost of the SDKs puts nothing behind it.
func (s *surroundings) domain() string {
	_, port, _ := net.SplitHostPort(s.tls.Listener.Addr().String())
	return wildcard + ":" + port
}

func (s *surroundings) image() string { return s.registry.Listener.Addr().String() + "/open/debian:12" }
func (s *surroundings) privateImage() string {
	return s.registry.Listener.Addr().String() + "/locked/debian:12"
}

// publish puts a Debian with python3 into the registry, where everybody may read it, and where Ada alone may.
func (s *surroundings) publish() error {
	rootfs, err := output(root("scripts/debian-rootfs.sh"))
	if err != nil {
		return err
	}
	tar, err := os.ReadFile(rootfs)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(tar, types.DockerUncompressedLayer))
	if err != nil {
		return err
	}
	for _, to := range []string{s.image(), s.privateImage()} {
		ref, err := name.ParseReference(to)
		if err != nil {
			return err
		}
		if err := remote.Write(ref, image, remote.WithAuth(&authn.Basic{Username: "ada", Password: "secret"})); err != nil {
			return err
		}
	}
	return nil
}

// locked wants a name and a password for what is below /v2/locked/.
func locked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		ada := user == "ada" && password == "secret"
		if !ada && (user != "" || strings.HasPrefix(r.URL.Path, "/v2/locked/")) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// forward is an HTTP proxy for clients, by CONNECT and by absolute addresses.
func forward(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		duplex(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.Out.Host = p.In.Host }, FlushInterval: -1}).ServeHTTP(w, r)
		return
	}
	to, err := net.DialTimeout("tcp", r.Host, 5*time.Second)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer from.Close()
	_, _ = from.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	go func() { _, _ = io.Copy(to, from); to.Close() }()
	_, _ = io.Copy(from, to)
}

func (s *surroundings) close() {
	for _, srv := range []*httptest.Server{s.tls, s.proxy, s.registry} {
		srv.CloseClientConnections()
		srv.Close()
	}
	_ = os.RemoveAll(s.dir)
}
