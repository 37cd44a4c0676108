package template

import (
	"context"
	"io"

	"github.com/dsec-platform/dsec/internal/layer"
)

// rootfsTar imports a root file system archive as one layer.
func (b *build) rootfsTar(ctx context.Context) error {
	r, err := openArchive(b.req.Source.Ref)
	if err != nil {
		return err
	}
	defer r.Close()
	return b.tarLayer(ctx, r, "root file system")
}

func (b *build) tarLayer(ctx context.Context, r io.Reader, note string) error {
	in, err := b.s.layers.Write(ctx, layer.WriteOptions{}, func(w *layer.Writer) error {
		return w.AddTar(b.counted(r, note, 0))
	})
	if err != nil {
		return err
	}
	b.push(in, note)
	return nil
}

// rootfsDir copies a root file system directory into one layer.
func (b *build) rootfsDir(ctx context.Context) error {
	const note = "root file system"
	b.progress(Progress{Stage: note, Message: "copying " + b.req.Source.Ref})
	in, err := b.s.layers.Write(ctx, layer.WriteOptions{}, func(w *layer.Writer) error {
		return w.AddDir(b.req.Source.Ref)
	})
	if err != nil {
		return err
	}
	b.push(in, note)
	return nil
}

// progressStep is how many bytes pass between two reports.
const progressStep = 4 << 20

type countingReader struct {
	r                 io.Reader
	b                 *build
	stage             string
	done, told, total int64
}

// counted reports what is read through it.
func (b *build) counted(r io.Reader, stage string, total int64) io.Reader {
	if b.req.Progress == nil {
		return r
	}
	return &countingReader{r: r, b: b, stage: stage, total: total}
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	if c.done-c.told >= progressStep || err == io.EOF && c.told != c.done {
		c.told = c.done
		c.b.progress(Progress{Stage: c.stage, Done: c.done, Total: c.total})
	}
	return n, err
}
