package api

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// fileHeaders says of a file what HTTP has words for, and its mode and owner.
func fileHeaders(w http.ResponseWriter, f *guestproto.FileInfo) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Last-Modified", time.Unix(0, f.ModUnix).UTC().Format(http.TimeFormat))
	h.Set("Etag", etag(f))
	h.Set("Dsec-File-Mode", fmt.Sprintf("%04o", f.Mode))
	h.Set("Dsec-File-Owner", fmt.Sprintf("%d:%d", f.UID, f.GID))
	h.Set("Dsec-File-Type", fileTypes[f.Type])
}

var fileTypes = map[guestproto.FileType]string{
	guestproto.TypeFile: "file", guestproto.TypeDir: "dir", guestproto.TypeSymlink: "symlink",
	guestproto.TypeFifo: "fifo", guestproto.TypeSocket: "socket", guestproto.TypeDevice: "device",
}

func etag(f *guestproto.FileInfo) string { return fmt.Sprintf(`"%x-%x"`, f.ModUnix, f.Size) }

// unchanged tells whether an If-Range header still holds.
func unchanged(ifRange string, f *guestproto.FileInfo) bool {
	if ifRange == "" || ifRange == etag(f) {
		return true
	}
	t, err := http.ParseTime(ifRange)
	return err == nil && time.Unix(0, f.ModUnix).UTC().Truncate(time.Second).Equal(t)
}

// byteRange is one asked range: from first, length bytes (-1: to the end), or
// as a suffix the last length bytes.
type byteRange struct {
	first, length int64
	suffix        bool
}

// parseRange reads a Range header. Nil: the whole file, also for several ranges,
// which the standard allows a server to ignore.
func parseRange(h string) (*byteRange, error) {
	spec, ok := strings.CutPrefix(h, "bytes=")
	if h == "" || !ok || strings.Contains(spec, ",") {
		return nil, nil
	}
	from, to, ok := strings.Cut(strings.TrimSpace(spec), "-")
	refused := errdefs.Userf(errdefs.InvalidArgument, "header Range", "write bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH", "%q is not a range", clip(h))
	if !ok {
		return nil, refused
	}
	if from == "" {
		n, err := strconv.ParseInt(to, 10, 64)
		if err != nil || n < 0 {
			return nil, refused
		}
		return &byteRange{length: n, suffix: true}, nil
	}
	first, err := strconv.ParseInt(from, 10, 64)
	if err != nil || first < 0 {
		return nil, refused
	}
	if to == "" {
		return &byteRange{first: first, length: -1}, nil
	}
	last, err := strconv.ParseInt(to, 10, 64)
	if err != nil || last < first {
		return nil, refused
	}
	if last == math.MaxInt64 { // more than a file can have
		return &byteRange{first: first, length: -1}, nil
	}
	return &byteRange{first: first, length: last - first + 1}, nil
}
