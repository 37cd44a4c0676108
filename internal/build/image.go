package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
	"github.com/dsec-platform/dsec/internal/template"
)

// image is what a reference meant when the registry was last asked.
type image struct {
	Ref     string    `json:"ref"`
	Digest  string    `json:"digest"`
	Version string    `json:"version"` // name@version in the node's template store
	Checked time.Time `json:"checked"`
	Used    time.Time `json:"used"`
}

// imageFlight is an import that several callers wait for.
type imageFlight struct {
	done chan struct{}
	t    *template.Template
	err  error
}

var notSlug = regexp.MustCompile(`[^a-z0-9]+`)

// operatorImage begins the names of what came with the node's own credentials, which others must not
// profit from: Hidden knows them by it.
const operatorImage = "operator-image-"

// imageName is the name of an image's template: readable, and different for every reference, and for
// who is asked with the node's own credentials.
func imageName(who Who, ref string) string {
	prefix := "image-"
	if who.Operator {
		prefix = operatorImage
	}
	sum := sha256.Sum256([]byte(ref))
	_, last := filepath.Split(strings.SplitN(strings.ToLower(ref), "@", 2)[0])
	slug := strings.Trim(notSlug.ReplaceAllString(last, "-"), "-")
	if len(slug) > 35 { // names have 63 bytes
		slug = strings.Trim(slug[:35], "-")
	}
	return prefix + slug + "-" + hex.EncodeToString(sum[:6])
}

// image gives the template of an image, imported if it is not here or the registry has a newer one.
func (s *Service) image(ctx context.Context, who Who, ref string) (*template.Template, error) {
	name := imageName(who, ref)
	s.mu.Lock()
	f := s.images[name]
	if f == nil {
		if s.closed {
			s.mu.Unlock()
			return nil, closing()
		}
		f = &imageFlight{done: make(chan struct{})}
		s.images[name] = f
		s.wg.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, buildLimit)
			defer cancel()
			f.t, f.err = s.imported(ctx, who, name, ref)
			s.mu.Lock()
			delete(s.images, name)
			s.mu.Unlock()
			close(f.done)
		})
	}
	s.mu.Unlock()
	select { // a caller's end is not the import's: the next one finds it done
	case <-f.done:
		return f.t, f.err
	case <-ctx.Done():
		return nil, errdefs.From(ctx.Err())
	}
}

func (s *Service) imported(ctx context.Context, who Who, name, ref string) (*template.Template, error) {
	src := template.Source{Kind: template.Registry, Ref: ref, Guarded: true}
	if !who.Operator {
		src.Login = &template.Login{}
	}
	now := s.cfg.Now().UTC()
	path := filepath.Join(s.cfg.Dir, "images", name+".json")
	var im image
	if jsonfile.Read(path, &im) == nil {
		t, err := s.cfg.Templates.Get(ctx, im.Version)
		fixed := strings.Contains(ref, "@sha256:")
		if err == nil && (fixed || now.Sub(im.Checked) < imageRefresh || s.unchanged(ctx, src, &im, now)) {
			im.Used = now
			return t, kept("image "+ref, jsonfile.Write(path, im, false))
		}
	}
	digest, err := s.cfg.Importer.ImageDigest(ctx, src)
	if err != nil {
		return nil, err
	}
	t, err := s.cfg.Importer.Import(ctx, template.ImportRequest{Name: name, Source: src})
	if err != nil {
		return nil, err
	}
	im = image{Ref: ref, Digest: digest, Version: t.Ref(), Checked: now, Used: now}
	return t, kept("image "+ref, jsonfile.Write(path, im, false))
}

// unchanged asks the registry. When it is away, what is here stays good.
func (s *Service) unchanged(ctx context.Context, src template.Source, im *image, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	digest, err := s.cfg.Importer.ImageDigest(ctx, src)
	if err != nil {
		s.log.Warn("a registry cannot be asked whether an image has changed", "image", src.Ref, "err", err)
	}
	im.Checked = now
	return err != nil || digest == im.Digest
}

// sweepImages removes images that nobody has used for long.
func (s *Service) sweepImages(now time.Time) {
	dir := filepath.Join(s.cfg.Dir, "images")
	err := eachFile(dir, ".json", func(path string) error {
		var im image
		if err := jsonfile.Read(path, &im); err != nil || now.Sub(im.Used) < imageLife {
			return err
		}
		name, _, _ := strings.Cut(im.Version, "@")
		if err := s.cfg.Templates.Remove(s.ctx, name); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			return nil // in use
		}
		return os.Remove(path)
	})
	if err != nil {
		s.log.Warn("unused images cannot be removed", "err", err)
	}
}
