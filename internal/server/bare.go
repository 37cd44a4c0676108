package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// bare is the native runtime alone, for the bench that tells what the rest of
// the product costs.
type bare struct {
	rt      runtime.Runtime
	dir     string
	root    runtime.Root
	claim   runtime.Claim
	release func()

	mu    sync.Mutex
	boxes []runtime.Box
}

// newBare makes it in a directory of its own, with a template of dataDir and a resolved spec.
func newBare(dataDir, ref string, s spec.Sandbox) (_ *bare, err error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	templates, err := template.Open(dataDir, template.Options{Log: quiet})
	if err != nil {
		return nil, err
	}
	b := &bare{claim: s.Claim()}
	if _, b.root, b.release, err = templates.Resolve(context.Background(), ref); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "dsec-bare-"); err != nil {
		return nil, err
	}
	if b.rt, err = native.New(native.Options{DataDir: b.dir, Log: quiet}); err != nil {
		os.RemoveAll(b.dir)
		return nil, err
	}
	return b, nil
}

func (b *bare) Run(ctx context.Context, id string) error {
	box, err := b.rt.Create(ctx, runtime.Config{ID: id, Root: b.root, Claim: b.claim})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.boxes = append(b.boxes, box)
	b.mu.Unlock()
	guest, err := guestOf(ctx, box)
	if err != nil {
		return err
	}
	defer guest.Close()
	r, err := guest.Run(ctx, guestproto.ExecRequest{OpID: "true", Argv: []string{"true"}})
	if err == nil && (r.ExitCode != 0 || r.Error != nil) {
		err = fmt.Errorf("true ended with %d %v", r.ExitCode, r.Error)
	}
	return err
}

func (b *bare) EndAll() {
	b.mu.Lock()
	boxes := b.boxes
	b.boxes = nil
	b.mu.Unlock()
	for _, box := range boxes {
		_ = box.Destroy(context.Background())
	}
}

func (b *bare) Close() {
	b.EndAll()
	_ = b.rt.Close()
	b.release()
	os.RemoveAll(b.dir)
}
