package site

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsec-platform/dsec/internal/egress/boxenv"
	"github.com/dsec-platform/dsec/internal/egress/credential"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// Trust is what makes boxes trust the authority of their project. Without Credentials no box needs to.
type Trust struct {
	Credentials *credential.Store
	Dir         string // keeps the files that boxes are shown
}

// bundles are where distributions keep the authorities that tools trust, below the root.
var bundles = []string{"etc/ssl/certs/ca-certificates.crt", "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem"}

const maxBundle = 4 << 20

// Trusted gives what a box of a project that has credentials is shown: in the place of the template's own list of
// authorities one that has the project's as well, and the variables that lead tools with a list of their
// own there. All boxes of such a project are shown it, so that a policy they are switched to may name a credential.
func (s *Site) Trusted(project string, root runtime.Root) ([]runtime.DataMount, []string, error) {
	c := s.trust.Credentials
	if c == nil || !c.Has(project) {
		return nil, nil, nil
	}
	a, err := c.Authority(project)
	if err != nil {
		return nil, nil, err
	}
	name, own := authorities(root)
	own = append(bytes.TrimRight(own, "\n"), '\n')
	source, err := s.keep(append(own, a.PEM()...))
	if err != nil {
		return nil, nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "authorities of project "+project, "%w", err)
	}
	target := "/" + name
	return []runtime.DataMount{{Source: source, Target: target}}, boxenv.Trust(target), nil
}

// authorities reads the template's list. A template without one gets this machine's in the usual place.
func authorities(root runtime.Root) (name string, data []byte) {
	tree, done := openLayers(root.Layers)
	defer done()
	for _, name := range bundles {
		if data, err := readSome(tree, name); err == nil {
			return name, data
		}
	}
	for _, name := range bundles {
		if data, err := readSome(os.DirFS("/"), name); err == nil {
			return bundles[0], data
		}
	}
	return bundles[0], nil
}

func readSome(tree fs.FS, name string) ([]byte, error) {
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBundle))
}

// keep stores data by its digest: what a box was shown never changes. Equal lists share a file.
func (s *Site) keep(data []byte) (string, error) {
	dir, err := filepath.EvalSymlinks(s.trust.Dir)
	if os.IsNotExist(err) {
		if err = os.MkdirAll(s.trust.Dir, 0o755); err == nil {
			dir, err = filepath.EvalSymlinks(s.trust.Dir)
		}
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, hex.EncodeToString(sum[:16])+".pem")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	tmp, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	if _, err = tmp.Write(data); err == nil {
		err = tmp.Chmod(0o644)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", err
	}
	return path, os.Rename(tmp.Name(), path)
}
