package credential

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Secret is one entry of the operator's file. Exactly one of Value, File and Env says the secret.
type Secret struct {
	// Header is the header's name; Authorization when empty.
	Header string `yaml:"header,omitempty"`
	// Scheme stands before the secret: "Bearer".
	Scheme string `yaml:"scheme,omitempty"`
	Value  string `yaml:"value,omitempty"`
	File   string `yaml:"file,omitempty"`
	Env    string `yaml:"env,omitempty"`
}

// String keeps the value out of logs.
func (s Secret) String() string { return s.Header + ": (secret)" }

// document is the operator's file: secrets by project and name.
type document struct {
	Projects map[string]map[string]Secret `yaml:"projects"`
}

// Store is the egress.Credentials of a node. It is safe for concurrent use.
type Store struct {
	dir     string
	secrets map[string]map[string]egress.Credential

	mu          sync.Mutex
	authorities map[string]*Authority
}

var _ egress.Credentials = (*Store)(nil)

// Open reads the operator's file of secrets, "" for none; the authorities' keys live below dir. A file that others
// can read is refused.
func Open(dir, file string) (*Store, error) {
	s := &Store{dir: dir, secrets: map[string]map[string]egress.Credential{}, authorities: map[string]*Authority{}}
	if file == "" {
		return s, nil
	}
	st, err := os.Stat(file)
	if err != nil {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "file "+file, "name a readable file of credentials", "%w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "file "+file, "chmod 600 "+file, "its secrets can be read by others (mode %o)", st.Mode().Perm())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "file "+file, "name a readable file of credentials", "%w", err)
	}
	var d document
	y := yaml.NewDecoder(bytes.NewReader(data))
	y.KnownFields(true)
	if err := y.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "file "+file, "write projects: {PROJECT: {NAME: {header, scheme, and value, file or env}}}", "%w", err)
	}
	for project, byName := range d.Projects {
		s.secrets[project] = map[string]egress.Credential{}
		for name, x := range byName {
			c, err := x.credential()
			if err != nil {
				return nil, errdefs.Userf(errdefs.InvalidArgument, fmt.Sprintf("%s: credential %s of project %s", file, name, project), "write header, and one of value, file or env", "%w", err)
			}
			s.secrets[project][name] = c
		}
	}
	return s, nil
}

func (s Secret) credential() (egress.Credential, error) {
	given := 0
	for _, v := range []string{s.Value, s.File, s.Env} {
		if v != "" {
			given++
		}
	}
	if given != 1 {
		return egress.Credential{}, fmt.Errorf("%d of value, file and env are given", given)
	}
	v := s.Value
	switch {
	case s.File != "":
		b, err := os.ReadFile(s.File)
		if err != nil {
			return egress.Credential{}, err
		}
		v = strings.TrimSpace(string(b))
	case s.Env != "":
		if v = os.Getenv(s.Env); v == "" {
			return egress.Credential{}, fmt.Errorf("the variable %s is empty", s.Env)
		}
	}
	if s.Scheme != "" {
		v = s.Scheme + " " + v
	}
	h := s.Header
	if h == "" {
		h = "Authorization"
	}
	if !isToken(h) || !isValue(v) {
		return egress.Credential{}, fmt.Errorf("header %q or its value has characters that no header may have", h)
	}
	switch strings.ToLower(h) {
	case "host", "connection", "content-length", "transfer-encoding", "upgrade", "expect":
		return egress.Credential{}, fmt.Errorf("the header %s is not a credential's", h)
	}
	return egress.Credential{Header: h, Value: v}, nil
}

// Credential implements egress.Credentials.
func (s *Store) Credential(project, name string) (egress.Credential, bool) {
	c, ok := s.secrets[project][name]
	return c, ok
}

// Has tells whether a project has any secret.
func (s *Store) Has(project string) bool { return len(s.secrets[project]) > 0 }

// Certificate implements egress.Credentials.
func (s *Store) Certificate(project, host string) (*tls.Certificate, error) {
	a, err := s.Authority(project)
	if err != nil {
		return nil, err
	}
	return a.Certificate(host)
}

// Authority gives a project's authority; it is made when it is asked for first.
func (s *Store) Authority(project string) (*Authority, error) {
	if project == "" || project != filepath.Base(project) || strings.HasPrefix(project, ".") {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "project "+project, "use a project's name", "is not a name")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.authorities[project]; ok {
		return a, nil
	}
	a, err := openAuthority(filepath.Join(s.dir, project), project)
	if err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "project "+project, "%w", err)
	}
	s.authorities[project] = a
	return a, nil
}

// isToken tells whether s may be a header's name.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("()<>@,;:\\\"/[]?={}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// isValue tells whether s may be a header's value: no control characters, so that it cannot end its line.
func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
