package site

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/dsec-platform/dsec/internal/egress/boxenv"
	"github.com/dsec-platform/dsec/internal/egress/credential"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// Trust is what makes boxes trust the authority of their project; without Credentials none does.
type Trust struct {
	Credentials *credential.Store
	Dir         string // keeps the files that boxes are shown
}

// bundles are where distributions keep the authorities that tools trust, below the root.
var bundles = []string{"etc/ssl/certs/ca-certificates.crt", "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem"}

const (
	maxBundle = 4 << 20
	// ownList is where a list is that the box's programs reach by variables alone, ownApt what leads apt there.
	ownList  = "/etc/dsec/authorities.pem"
	aptParts = "etc/apt/apt.conf.d"
	ownApt   = "/" + aptParts + "/95dsec-authorities"
	maxShown = 1024
)

// shown is what boxes are shown to trust their project's authority.
type shown struct {
	mounts []runtime.DataMount
	env    []string
}

// Trusted gives what a box that is networked, or of a project that has credentials, is shown: the template's list of
// authorities with the project's one added, and the variables that lead tools there. It is in the place of
// the template's own list, so that everything trusts it, but for a box whose root can be written and whose project
// has no credentials: there a package that is installed may replace the list, which it cannot while something is mounted
// upon it. All boxes of a project with credentials are shown it, so that a policy they are switched to may name one.
func (s *Site) Trusted(project string, root runtime.Root, networked, writable bool) ([]runtime.DataMount, []string, error) {
	c := s.trust.Credentials
	if c == nil || !networked && !c.Has(project) {
		return nil, nil, nil
	}
	aside := writable && !c.Has(project)
	key := shownKey(project, root, aside)
	s.mu.Lock()
	known, ok := s.shown[key]
	s.mu.Unlock()
	if !ok {
		var err error
		if known, err = s.show(project, root, aside); err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
		if len(s.shown) >= maxShown {
			clear(s.shown)
		}
		s.shown[key] = known
		s.mu.Unlock()
	}
	return slices.Clone(known.mounts), slices.Clone(known.env), nil
}

// shownKey names all that a list is made of: layers do not change; this machine's own list may.
func shownKey(project string, root runtime.Root, aside bool) string {
	key := fmt.Sprintf("%s\x00%t", project, aside)
	for _, l := range root.Layers {
		key += "\x00" + l.Path
	}
	for _, name := range bundles {
		if st, err := os.Stat("/" + name); err == nil {
			return fmt.Sprintf("%s\x00%s %d %d", key, name, st.Size(), st.ModTime().UnixNano())
		}
	}
	return key
}

func (s *Site) show(project string, root runtime.Root, aside bool) (shown, error) {
	a, err := s.trust.Credentials.Authority(project)
	if err != nil {
		return shown{}, err
	}
	tree, done := openLayers(root.Layers)
	defer done()
	name, own := authorities(tree)
	source, err := s.keep(append(append(bytes.TrimRight(own, "\n"), '\n'), a.PEM()...), ".pem")
	if err != nil {
		return shown{}, unkept(project, err)
	}
	if !aside {
		return shown{[]runtime.DataMount{{Source: source, Target: "/" + name}}, boxenv.Trust("/" + name)}, nil
	}
	out := shown{[]runtime.DataMount{{Source: source, Target: ownList}}, boxenv.Trust(ownList)}
	if st, err := fs.Stat(tree, aptParts); err == nil && st.IsDir() {
		conf, err := s.keep([]byte("Acquire::https::CaInfo \""+ownList+"\";\n"), ".conf")
		if err != nil {
			return shown{}, unkept(project, err)
		}
		out.mounts = append(out.mounts, runtime.DataMount{Source: conf, Target: ownApt})
	}
	return out, nil
}

func unkept(project string, err error) error {
	return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "authorities of project "+project, "%w", err)
}

// authorities reads the template's list. A template without one gets this machine's in the usual place.
func authorities(tree layers) (name string, data []byte) {
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
func (s *Site) keep(data []byte, ext string) (string, error) {
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
	path := filepath.Join(dir, hex.EncodeToString(sum[:16])+ext)
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
