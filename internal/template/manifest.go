package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/spec"
)

const manifestVersion = 1

// manifest is a template on disk. Unknown fields are skipped; a newer
// ManifestVersion is refused.
type manifest struct {
	ManifestVersion int                `json:"manifest_version"`
	Name            string             `json:"name"`
	Version         string             `json:"version"`
	Digest          string             `json:"digest"`
	Created         time.Time          `json:"created"`
	Source          string             `json:"source"`
	Layers          []LayerRef         `json:"layers"` // top first
	Env             []string           `json:"env,omitempty"`
	Cwd             string             `json:"cwd,omitempty"`
	User            string             `json:"user,omitempty"`
	Spec            spec.Sandbox       `json:"spec,omitzero"`
	Start           StartCommand       `json:"start,omitzero"`
	HostView        bool               `json:"host_view,omitempty"`
	HostBinds       []runtime.HostBind `json:"host_binds,omitempty"`
	// Fingerprint of the host that a host view was made from, and its boot id.
	Fingerprint string `json:"fingerprint,omitempty"`
	Boot        string `json:"boot,omitempty"`
}

// seal computes the digest over what a box would notice: not over names, dates
// or how a node stores a layer.
func (m *manifest) seal() error {
	digests := make([]string, len(m.Layers))
	for i, l := range m.Layers {
		digests[i] = l.Digest
	}
	b, err := json.Marshal(struct {
		Form      string
		Layers    []string
		Env       []string
		Cwd, User string
		Spec      spec.Sandbox
		HostView  bool
		HostBinds []runtime.HostBind
		Start     StartCommand `json:",omitzero"` // not said where there is none: older digests stay
	}{"dsec template 1", digests, m.Env, m.Cwd, m.User, m.Spec, m.HostView, m.HostBinds, m.Start})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	m.ManifestVersion = manifestVersion
	m.Digest = "sha256:" + hex.EncodeToString(sum[:])
	m.Version = hex.EncodeToString(sum[:])[:12]
	return nil
}

func (m *manifest) template() *Template {
	t := &Template{Name: m.Name, Version: m.Version, Digest: m.Digest, Created: m.Created, Source: m.Source,
		Layers: m.Layers, Env: m.Env, Cwd: m.Cwd, User: m.User, Spec: m.Spec, Start: m.Start, HostView: m.HostView}
	if t.Spec.User == "" && t.User != "root" && t.User != "0" { // root is for a session to ask for
		t.Spec.User = t.User
	}
	for _, l := range m.Layers {
		t.Size += l.Size
	}
	return t
}

// readManifest gives an error that is fs.ErrNotExist when there is none.
func readManifest(path string) (*manifest, error) {
	var m manifest
	err := jsonfile.Read(path, &m)
	object := "template " + filepath.Base(filepath.Dir(path)) + "@" + strings.TrimSuffix(filepath.Base(path), ".json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, object, "its manifest cannot be read: %w", err)
	case m.ManifestVersion > manifestVersion:
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unsupported, object, "written by a newer release (manifest version %d)", m.ManifestVersion)
	}
	return &m, nil
}

func (s *Local) manifestPath(name, version string) string {
	return filepath.Join(s.dir, name, version+".json")
}

// newest gives the version that the bare name means, "" for none.
func (s *Local) newest(name string) string {
	b, err := os.ReadFile(filepath.Join(s.dir, name, "newest"))
	if err != nil {
		return ""
	}
	return strings.Trim(string(b), "\"\n")
}

func (s *Local) setNewest(name, version string) error {
	return jsonfile.Write(filepath.Join(s.dir, name, "newest"), version, false)
}

// put publishes m and makes it the newest of its name. The caller holds the
// layer store. The first publication's date stays.
func (s *Local) put(m *manifest, durable bool) error {
	l, err := s.lock()
	if err != nil {
		return err
	}
	defer l.Close()
	if err := os.MkdirAll(filepath.Join(s.dir, m.Name), 0o700); err != nil {
		return err
	}
	path := s.manifestPath(m.Name, m.Version)
	if old, err := readManifest(path); err == nil && old.Digest == m.Digest {
		m.Created = old.Created
	}
	if err := jsonfile.Write(path, m, durable); err != nil {
		return err
	}
	return s.setNewest(m.Name, m.Version)
}

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

func checkName(name string) error {
	if !nameRE.MatchString(name) || strings.Contains(name, "..") {
		return errdefs.Userf(errdefs.InvalidArgument, "template name "+name, "use up to 63 of a-z 0-9 . _ -, a letter or digit first and last", "not a template name")
	}
	return nil
}
