package archive

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func TestPlain(t *testing.T) {
	text := bytes.Repeat([]byte("some content "), 10_000)
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{g, z} {
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, packed := range map[string][]byte{"gzip": gz.Bytes(), "zstd": zs.Bytes(), "plain": text} {
		r, err := Plain(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		r.Close()
		if name == "plain" {
			continue
		}
		if r, err = Plain(bytes.NewReader(packed[:len(packed)-5])); err == nil {
			_, err = io.ReadAll(r)
			r.Close()
		}
		if err == nil {
			t.Errorf("%s: a part is taken for the whole", name)
		}
	}
	if _, err := Plain(bytes.NewReader([]byte{0x1f, 0x8b, 0, 0})); errdefs.From(err).Class != errdefs.User {
		t.Errorf("a broken header: %v", err)
	}
	if r, err := Plain(bytes.NewReader(nil)); err != nil {
		t.Errorf("nothing: %v", err)
	} else if b, err := io.ReadAll(r); len(b) != 0 || err != nil {
		t.Errorf("nothing became %q, %v", b, err)
	}
}
