package template

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// openImage finds the image that src means. done must be called when its layers
// have been read.
func (b *build) openImage(ctx context.Context, src Source) (img v1.Image, done func(), err error) {
	done = func() {}
	platform, err := platformOf(src)
	if err != nil {
		return nil, done, err
	}
	switch src.Kind {
	case Registry:
		img, err = b.s.fromRegistry(ctx, src, platform)
	case Layout:
		img, err = fromLayout(src.Ref, src, platform)
	default:
		var dir string
		if dir, done, err = b.s.layers.TempDir(); err != nil {
			return nil, func() {}, err
		}
		img, err = b.fromArchive(ctx, dir, src, platform)
	}
	if err != nil {
		done()
		return nil, func() {}, err
	}
	return img, done, nil
}

func platformOf(src Source) (v1.Platform, error) {
	if src.Platform == "" {
		return v1.Platform{OS: "linux", Architecture: goruntime.GOARCH}, nil
	}
	p, err := v1.ParsePlatform(src.Platform)
	if err != nil || p.OS != "linux" {
		return v1.Platform{}, errdefs.Userf(errdefs.InvalidArgument, "platform "+src.Platform, "write linux/amd64", "not a platform that boxes run")
	}
	return *p, nil
}

func fromLayout(dir string, src Source, p v1.Platform) (v1.Image, error) {
	idx, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "layout "+src.Ref, "give a directory in the OCI image layout", "cannot be read: %w", err)
	}
	img, err := pickImage(idx, src, p, 0)
	if err != nil {
		return nil, badImage(src, err)
	}
	return img, nil
}

// pickImage goes down an index: by name where several have one, then by platform.
func pickImage(idx v1.ImageIndex, src Source, p v1.Platform, depth int) (v1.Image, error) {
	m, err := idx.IndexManifest()
	if err != nil {
		return nil, err
	}
	if depth > 4 {
		return nil, fmt.Errorf("indexes are nested too deep")
	}
	var fit []v1.Descriptor
	var names []string
	for _, d := range m.Manifests {
		ref := d.Annotations["org.opencontainers.image.ref.name"]
		if full := d.Annotations["io.containerd.image.name"]; full != "" {
			names = append(names, full)
		} else if ref != "" {
			names = append(names, ref)
		}
		if depth == 0 && src.Image != "" && src.Image != ref && src.Image != d.Annotations["io.containerd.image.name"] {
			continue
		}
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() || d.Platform != nil && !d.Platform.Satisfies(p) {
			continue
		}
		fit = append(fit, d)
	}
	switch {
	case len(fit) == 0 && src.Image != "" && depth == 0:
		return nil, fmt.Errorf("it has no image %q; it has: %s", src.Image, strings.Join(names, ", "))
	case len(fit) == 0:
		return nil, fmt.Errorf("it has no image for %s", p)
	case len(fit) > 1 && depth == 0 && len(names) > 1:
		return nil, fmt.Errorf("it has several images, name one of: %s", strings.Join(names, ", "))
	}
	if fit[0].MediaType.IsIndex() {
		sub, err := idx.ImageIndex(fit[0].Digest)
		if err != nil {
			return nil, err
		}
		return pickImage(sub, src, p, depth+1)
	}
	return idx.Image(fit[0].Digest)
}

// fromArchive unpacks the outer tar into dir: it may be compressed, and both kinds
// of archive need its files out of order. Only plain files are taken.
func (b *build) fromArchive(ctx context.Context, dir string, src Source, p v1.Platform) (v1.Image, error) {
	r, err := openArchive(src.Ref)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	flat := filepath.Join(dir, "archive.tar")
	f, err := os.OpenFile(flat, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The archive of an image holds each of its layers, which are bounded by themselves as they are read.
	const most = 128 << 30
	if err := copyContext(ctx, f, io.LimitReader(b.counted(r, "archive", 0), most+1)); err != nil {
		return nil, badImage(src, err)
	}
	if n, err := f.Seek(0, io.SeekCurrent); err == nil && n > most {
		return nil, errdefs.Limitf(errdefs.TooLarge, "image "+src.Ref, "split it into smaller images", "unpacked its archive has more than %d bytes", int64(most))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	kinds, err := unpackLayout(f, filepath.Join(dir, "layout"))
	if err != nil {
		return nil, badImage(src, err)
	}
	if kinds.layout {
		return fromLayout(filepath.Join(dir, "layout"), src, p)
	}
	if !kinds.docker {
		return nil, badImage(src, fmt.Errorf("it holds neither manifest.json nor an OCI layout"))
	}
	img, err := fromDocker(flat, src)
	if err != nil {
		return nil, badImage(src, err)
	}
	return img, nil
}

func fromDocker(path string, src Source) (v1.Image, error) {
	opener := func() (io.ReadCloser, error) { return os.Open(path) }
	if src.Image != "" {
		tag, err := name.NewTag(src.Image)
		if err != nil {
			return nil, err
		}
		return tarball.Image(opener, &tag)
	}
	m, err := tarball.LoadManifest(opener)
	if err != nil {
		return nil, err
	}
	if len(m) > 1 {
		var names []string
		for _, d := range m {
			names = append(names, d.RepoTags...)
		}
		return nil, fmt.Errorf("it has several images, name one of: %s", strings.Join(names, ", "))
	}
	return tarball.Image(opener, nil)
}

type archiveKinds struct{ docker, layout bool }

// unpackLayout takes the files of an OCI layout out of an archive and tells what
// the archive is.
func unpackLayout(r io.Reader, dir string) (archiveKinds, error) {
	var k archiveKinds
	var marks int
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return k, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return k, err
	}
	defer root.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			k.layout = marks == 2
			return k, nil
		}
		if err != nil {
			return k, err
		}
		entry := strings.TrimPrefix(h.Name, "./")
		switch {
		case h.Typeflag != tar.TypeReg:
			continue
		case entry == "manifest.json":
			k.docker = true
			continue
		case entry == "oci-layout", entry == "index.json":
			marks++
		case !strings.HasPrefix(entry, "blobs/"):
			continue
		}
		if err := root.MkdirAll(filepath.Dir(entry), 0o700); err != nil {
			return k, err
		}
		f, err := root.Create(entry)
		if err != nil {
			return k, err
		}
		_, err = io.Copy(f, tr)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return k, err
		}
	}
}

func copyContext(ctx context.Context, w io.Writer, r io.Reader) error {
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func badImage(src Source, err error) error {
	return errdefs.Userf(errdefs.InvalidArgument, "image "+src.Ref, "check that it is a whole image for this platform", "cannot be used: %w", err)
}
