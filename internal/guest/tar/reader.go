package tar

import (
	"io"
	"strings"
)

// Reader reads a tar stream. It never holds content in memory.
type Reader struct {
	r         io.Reader
	left, pad int64 // of the current entry's content
	global    records
}

// NewReader reads from r, in reads of its own sizes: wrap what is slow in a buffer.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next goes to the next entry; io.EOF at the archive's end (a stream that ends
// between entries is taken as ended). An error is final.
func (r *Reader) Next() (*Header, error) {
	var ext records
	var longName, longLink string
	for {
		if err := r.skip(); err != nil {
			return nil, err
		}
		var b block
		if _, err := io.ReadFull(r.r, b[:]); err != nil {
			if err == io.EOF && ext == nil && longName == "" && longLink == "" {
				return nil, io.EOF
			}
			return nil, unexpected(err)
		}
		if b == (block{}) {
			return nil, io.EOF
		}
		if sum, ok := b.parse(fChecksum); !ok || sum != b.checksum() {
			return nil, ErrFormat
		}
		size, ok := b.parse(fSize)
		if !ok || size < 0 || size > maxSize {
			return nil, ErrFormat
		}
		switch typ := b[fType.off]; typ {
		case typePAX, typeGlobal:
			data, err := r.small(size, maxRecords)
			if err != nil {
				return nil, err
			}
			if ext == nil {
				ext = records{}
			}
			into := ext
			if typ == typeGlobal {
				if r.global == nil {
					r.global = records{}
				}
				into = r.global
			}
			if !into.parse(data) {
				return nil, ErrFormat
			}
		case typeLongName, typeLongLink:
			data, err := r.small(size, maxName+1)
			if err != nil {
				return nil, err
			}
			name, _, _ := strings.Cut(string(data), "\x00")
			if typ == typeLongName {
				longName = name
			} else {
				longLink = name
			}
		case typeGNUSparse:
			return nil, ErrSparse
		default:
			h, err := r.entry(&b, size, ext, longName, longLink)
			if err != nil {
				return nil, err
			}
			return h, nil
		}
	}
}

// entry makes a header of its block and what came before it.
func (r *Reader) entry(b *block, size int64, ext records, longName, longLink string) (*Header, error) {
	h := &Header{Name: b.text(fName), Linkname: b.text(fLink), Type: Type(b[fType.off])}
	if prefix := b.text(fPrefix); prefix != "" && string(b.bytes(fMagic)[:6]) == "ustar\x00" {
		h.Name = prefix + "/" + h.Name
	}
	mode, ok1 := b.parse(fMode)
	uid, ok2 := b.parse(fUID)
	gid, ok3 := b.parse(fGID)
	mod, ok4 := b.parse(fMod)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return nil, ErrFormat
	}
	h.Mode, h.ModUnix = uint32(mode)&0o7777, mod
	if longName != "" {
		h.Name = longName
	}
	if longLink != "" {
		h.Linkname = longLink
	}
	text := func(key string, into *string) {
		if v, ok := r.record(ext, key); ok {
			*into = v
		}
	}
	number := func(key string, into *int64) bool {
		v, ok := r.record(ext, key)
		if !ok {
			return true
		}
		n, ok := decimal(v)
		*into = n
		return ok
	}
	text("path", &h.Name)
	text("linkpath", &h.Linkname)
	if !number("size", &size) || !number("uid", &uid) || !number("gid", &gid) || !number("mtime", &h.ModUnix) || size < 0 || size > maxSize {
		return nil, ErrFormat
	}
	h.UID, h.GID = id(uid), id(gid)
	switch h.Type {
	case typeFileOld, typeCont:
		h.Type = TypeFile
	}
	if h.Type == TypeFile && strings.HasSuffix(h.Name, "/") && b[fType.off] == typeFileOld {
		h.Type = TypeDir // as tar before ustar wrote directories
	}
	if h.Type != TypeFile {
		// Only files have content. Sizes of hard links repeat that of their target.
		if h.Type == TypeLink || h.Type == TypeSymlink || h.Type == TypeDir || h.Type == TypeFifo {
			size = 0
		}
	}
	r.left, r.pad = size, padding(size)
	if h.Type == TypeFile {
		h.Size = size
		if err := r.sparse(h, ext); err != nil {
			return nil, err
		}
	}
	if h.Name == "" || len(h.Name) > maxName || len(h.Linkname) > maxName ||
		strings.IndexByte(h.Name, 0) >= 0 || strings.IndexByte(h.Linkname, 0) >= 0 {
		return nil, ErrFormat
	}
	return h, nil
}

// Read gives the entry's content; io.EOF at its end.
func (r *Reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.r.Read(p)
	r.left -= int64(n)
	if r.left > 0 {
		err = unexpected(err)
	} else if err == io.EOF {
		err = nil
	}
	return n, err
}

// skip passes over the rest of the entry.
func (r *Reader) skip() error {
	if n := r.left + r.pad; n > 0 {
		r.left, r.pad = 0, 0
		if _, err := io.CopyN(io.Discard, r.r, n); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

// small reads the whole content of an extension entry.
func (r *Reader) small(size int64, limit int) ([]byte, error) {
	if size > int64(limit) {
		return nil, ErrFormat
	}
	data := make([]byte, size+padding(size))
	if _, err := io.ReadFull(r.r, data); err != nil {
		return nil, unexpected(err)
	}
	return data[:size], nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// id is an owner's number; what is out of range is nobody's.
func id(v int64) uint32 {
	if v < 0 || v >= 1<<32-1 {
		return 65534
	}
	return uint32(v)
}
