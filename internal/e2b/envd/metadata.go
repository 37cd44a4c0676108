package envd

import (
	"net/http"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// Metadata of files are headers of an upload and extended attributes of the file: other tools see
// and set them too.
const (
	metadataHeader = "X-Metadata-"
	metadataAttr   = "user.e2b."
	maxMetadata    = 32 << 10 // bytes of one upload's
)

// metadataOf reads the metadata of an upload, each "key=value".
func metadataOf(h http.Header) (list []string, err error) {
	size := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(http.CanonicalHeaderKey(name), metadataHeader)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		switch {
		case key == "" || strings.ContainsAny(key, "=\x00"):
			return nil, bad("header "+e2b.Clip(name), "use letters, digits and dashes", "it names no metadata")
		case len(values) != 1:
			return nil, bad("header "+e2b.Clip(name), "send it once", "it is sent %d times", len(values))
		case strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r > '~' }):
			return nil, bad("header "+e2b.Clip(name), "use printable ASCII", "its value has other characters")
		}
		a := key + "=" + values[0]
		if size += len(a); size > maxMetadata || len(a) > guestproto.MaxAttr || len(list) == guestproto.MaxAttrs {
			return nil, errdefs.Limitf(errdefs.TooLarge, "metadata", "put it into a file", "there is more than a file can have")
		}
		list = append(list, a)
	}
	slices.Sort(list)
	return list, nil
}

// metadata is what a client is told of attributes; nil for none.
func metadata(attrs []string) map[string]string {
	if len(attrs) == 0 {
		return nil
	}
	m := make(map[string]string, len(attrs))
	for _, a := range attrs {
		k, v, _ := strings.Cut(a, "=")
		m[utf8Text(k)] = utf8Text(v)
	}
	return m
}
