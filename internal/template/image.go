package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// parallelLayers is how many layers of an image are fetched and unpacked at a time.
const parallelLayers = 3

func asTransportError(err error) (*transport.Error, bool) {
	return errors.AsType[*transport.Error](err)
}

// image imports each layer of an image as a layer of its own, so that images
// that share some share them here too.
func (b *build) image(ctx context.Context) error {
	src := b.req.Source
	b.progress(Progress{Stage: "image", Message: "looking at " + src.Ref})
	img, done, err := b.openImage(ctx, src)
	if err != nil {
		return err
	}
	defer done()
	cfg, err := img.ConfigFile()
	if err != nil {
		return b.imageError(err)
	}
	layers, err := img.Layers()
	if err != nil {
		return b.imageError(err)
	}
	if len(layers) != len(cfg.RootFS.DiffIDs) {
		return badImage(src, fmt.Errorf("its configuration names %d layers, its manifest %d", len(cfg.RootFS.DiffIDs), len(layers)))
	}
	infos := make([]layer.Info, len(layers))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLayers)
	for i, l := range layers {
		g.Go(func() (err error) {
			stage := fmt.Sprintf("layer %d/%d", i+1, len(layers))
			infos[i], err = b.imageLayer(gctx, l, cfg.RootFS.DiffIDs[i], stage)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return b.imageError(err)
	}
	for _, in := range infos {
		b.push(in, "image layer")
	}
	b.config = configOf(cfg.Config)
	return nil
}

func (b *build) imageError(err error) error {
	if _, ok := errors.AsType[*errdefs.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if b.req.Source.Kind == Registry {
		return b.s.registryError(b.req.Source.Ref, err)
	}
	return badImage(b.req.Source, err)
}

// imageLayer makes one layer, unless this node has made it before. What the
// image's configuration promised about its content is checked, not believed.
func (b *build) imageLayer(ctx context.Context, l v1.Layer, diffID v1.Hash, stage string) (layer.Info, error) {
	key := "oci:" + diffID.String()
	if in, _, ok := b.s.layers.ByKey(key); ok {
		b.progress(Progress{Stage: stage, Message: "already here"})
		return in, nil
	}
	size, _ := l.Size()
	packed, err := l.Compressed()
	if err != nil {
		return layer.Info{}, err
	}
	defer packed.Close()
	plain, err := layer.Decompress(b.counted(packed, stage, size))
	if err != nil {
		return layer.Info{}, err
	}
	defer plain.Close()
	h := sha256.New()
	in, err := b.s.layers.Write(ctx, layer.WriteOptions{Whiteouts: true}, func(w *layer.Writer) error {
		if err := w.AddTar(io.TeeReader(plain, h)); err != nil {
			return err
		}
		if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != diffID.String() {
			return fmt.Errorf("%s: its content is %s, the image's configuration says %s", stage, got, diffID)
		}
		return nil
	})
	if err != nil {
		return in, err
	}
	b.progress(Progress{Stage: stage, Message: "done", Done: size, Total: size})
	return in, b.s.layers.SetKey(layer.Key{Key: key, Layer: in.Digest})
}

// configOf takes what a session can use. That an image runs as root unless told
// otherwise is no wish of its author's: sessions decide, and default to a user.
func configOf(c v1.Config) imageConfig {
	out := imageConfig{cwd: c.WorkingDir}
	for _, kv := range c.Env {
		k, _, ok := strings.Cut(kv, "=")
		if ok && k != "" && k != "HOSTNAME" && k != "HOME" && !strings.ContainsRune(kv, 0) {
			out.env = append(out.env, kv)
		}
	}
	out.user, _, _ = strings.Cut(c.User, ":")
	if out.user == "0" || out.user == "root" {
		out.user = ""
	}
	if out.cwd == "/" {
		out.cwd = ""
	}
	return out
}
