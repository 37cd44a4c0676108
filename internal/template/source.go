package template

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// Kind of a Source.
type Kind string

const (
	Registry Kind = "oci"        // image reference in a registry
	Layout   Kind = "oci-layout" // directory in the OCI image layout
	Archive  Kind = "archive"    // tar of `docker save`, or of an OCI layout
	Tar      Kind = "tar"        // root file system as a tar
	Dir      Kind = "dir"        // root file system as a directory
	Debian   Kind = "debian"     // built by mmdebstrap; Ref is the suite

	FromTemplate Kind = "template" // another template: name or name@version
)

// Source is where a template comes from.
type Source struct {
	Kind Kind
	Ref  string // reference, path or suite
	// Image picks one of a layout or archive that holds several: a tag or reference.
	Image string
	// Platform of a multi-platform image, "linux/arm64"; empty: this machine's.
	Platform string
	// Insecure talks plain HTTP to the registry.
	Insecure bool
	// Guarded reaches a registry that the operator has not listed at public addresses only.
	Guarded bool
	// Login replaces the credentials of the Docker configuration; it is kept nowhere.
	Login *Login
	// Packages and Variant (default apt: essential packages and apt) of a Debian
	// build; Mirrors replace the host's own sources for the suite.
	Packages []string
	Variant  string
	Mirrors  []string
}

// Login is an account at a registry. The zero value is nobody's: what is public can be fetched.
type Login struct{ User, Password string }

func (s Source) String() string { return string(s.Kind) + ":" + s.Ref }

// ParseSource reads "KIND:REF", or guesses: a path that exists is a layout, an
// archive, a root file system tar or directory, by its content; anything else
// is an image reference. Debian builds are not written this way.
func ParseSource(arg string) (Source, error) {
	if kind, ref, ok := strings.Cut(arg, ":"); ok && ref != "" {
		switch k := Kind(kind); k {
		case Registry, Layout, Archive, Tar, Dir: // debian:12 is an image, too
			return Source{Kind: k, Ref: ref}, nil
		}
	}
	st, err := os.Stat(arg)
	switch {
	case err != nil && (os.IsNotExist(err) && !strings.HasPrefix(arg, "/") && !strings.HasPrefix(arg, ".")):
		return Source{Kind: Registry, Ref: arg}, nil
	case err != nil:
		return Source{}, errdefs.Userf(errdefs.NotFound, "source "+arg, "give an existing path, or KIND:REF", "cannot be read: %w", err)
	case st.IsDir():
		if _, err := os.Stat(filepath.Join(arg, "oci-layout")); err == nil {
			return Source{Kind: Layout, Ref: arg}, nil
		}
		return Source{Kind: Dir, Ref: arg}, nil
	}
	image, err := isImageArchive(arg)
	if err != nil {
		return Source{}, err
	}
	if image {
		return Source{Kind: Archive, Ref: arg}, nil
	}
	return Source{Kind: Tar, Ref: arg}, nil
}

// isImageArchive looks for the index files of an image archive. They stand
// anywhere in it, so a root file system may be read to its end.
func isImageArchive(path string) (bool, error) {
	r, err := openArchive(path)
	if err != nil {
		return false, err
	}
	defer r.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, errdefs.Userf(errdefs.InvalidArgument, "file "+path, "give a tar archive", "cannot be read: %w", err)
		}
		switch name := strings.TrimPrefix(h.Name, "./"); name {
		case "manifest.json", "oci-layout", "index.json":
			return true, nil
		case "etc/", "usr/", "bin", "etc", "usr", "dev/":
			return false, nil
		}
	}
}

type archiveReader struct {
	io.ReadCloser
	file *os.File
}

func (a archiveReader) Close() error {
	a.ReadCloser.Close()
	return a.file.Close()
}

// openArchive opens a file and unpacks its compression; "-" is standard input.
func openArchive(path string) (io.ReadCloser, error) {
	f := os.Stdin
	if path != "-" {
		var err error
		if f, err = os.Open(path); err != nil {
			return nil, errdefs.Userf(errdefs.NotFound, "file "+path, "give a readable file", "cannot be opened: %w", err)
		}
	}
	r, err := layer.Decompress(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return archiveReader{r, f}, nil
}
