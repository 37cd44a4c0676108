package native

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// Boxes that were adopted from an earlier release run its guest. Each guest in
// testdata is the one of a release, kept as it was built; never replace one, add
// the next when its protocol is released.
func TestGuestsOfEarlierReleasesAreServed(t *testing.T) {
	files, err := filepath.Glob("testdata/guest-*-amd64.zst")
	if err != nil || len(files) == 0 {
		t.Fatalf("no guests are kept: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".zst"), func(t *testing.T) {
			m := newMachine(t)
			old, own := unpackGuest(t, file), m.guest
			m.guest = old
			defer func() { m.guest = own; old.Close() }()

			b := m.create(func(c *runtime.Config) { c.Pooled = true })
			defer b.Destroy(ctx(t))
			c := m.config().Claim
			c.Env = []string{"CLAIMED=yes"}
			if err := b.Claim(ctx(t), c); err != nil {
				t.Fatal(err)
			}
			g := guestOf(t, b)
			if got := out(t, g, "", "echo $CLAIMED; id -u"); got != "yes\n1000" {
				t.Errorf("a command gave %q", got)
			}
			if _, err := g.WriteFile(ctx(t), guestclient.WriteOptions{OpID: "w", Path: "/workspace/f", Size: -1}, strings.NewReader("kept")); err != nil {
				t.Fatal(err)
			}
			_, r, err := g.ReadFile(ctx(t), "/workspace/f", "", 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != "kept" {
				t.Errorf("a file came back as %q, %v", got, err)
			}
			r.Close()
			if _, err := g.Run(ctx(t), guestproto.ExecRequest{OpID: "s", ShellSession: "s", Script: "cd /tmp", Shell: "/bin/sh"}); err != nil {
				t.Fatal(err)
			}
			if ops, err := g.List(ctx(t)); err != nil || len(ops) == 0 {
				t.Errorf("list gave %d ops, %v", len(ops), err)
			}
		})
	}
}

func unpackGuest(t *testing.T, file string) *os.File {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	z, err := zstd.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	path := filepath.Join(t.TempDir(), "dsec-guest")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(out, z)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
