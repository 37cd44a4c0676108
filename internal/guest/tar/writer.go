package tar

import (
	"errors"
	"io"
	"strconv"
)

// Writer writes a tar stream. It never holds content in memory.
type Writer struct {
	w         io.Writer
	left, pad int64
	err       error
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// ErrLength is content that is not as long as its header said.
var ErrLength = errors.New("tar: content and header differ in length")

// WriteHeader begins an entry; the one before must be complete. Exactly h.Stored() bytes of content follow.
func (w *Writer) WriteHeader(h *Header) error {
	if err := w.finish(); err != nil {
		return err
	}
	var b block
	var records []byte
	var sparse []byte
	name, link := h.Name, h.Linkname
	stored := int64(0)
	if h.Type == TypeFile {
		stored = h.Stored()
	}
	if h.Data != nil {
		sparse = sparseMap(h)
		records = appendRecord(records, "GNU.sparse.major", "1")
		records = appendRecord(records, "GNU.sparse.minor", "0")
		records = appendRecord(records, "GNU.sparse.name", name)
		records = appendRecord(records, "GNU.sparse.realsize", strconv.FormatInt(h.Size, 10))
		stored += int64(len(sparse))
		name = "sparse"
	}
	if len(name) > fName.len {
		if dir, base, ok := split(name); ok {
			copy(b.bytes(fPrefix), dir)
			name = base
		} else {
			records = appendRecord(records, "path", name)
		}
	}
	if len(link) > fLink.len {
		records = appendRecord(records, "linkpath", link)
	}
	copy(b.bytes(fName), name)
	copy(b.bytes(fLink), link)
	b[fType.off] = byte(h.Type)
	records = b.number(fMode, "", int64(h.Mode), records)
	records = b.number(fUID, "uid", int64(h.UID), records)
	records = b.number(fGID, "gid", int64(h.GID), records)
	records = b.number(fSize, "size", stored, records)
	records = b.number(fMod, "mtime", h.ModUnix, records)
	if len(records) > 0 {
		w.extension(records)
	}
	w.header(&b)
	w.raw(sparse)
	w.left, w.pad = stored-int64(len(sparse)), padding(stored)
	return w.err
}

// Write adds content to the entry.
func (w *Writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, ErrLength
	}
	w.raw(p)
	if w.err != nil {
		return 0, w.err
	}
	w.left -= int64(len(p))
	return len(p), nil
}

// Close ends the stream; it does not close the writer below.
func (w *Writer) Close() error {
	if err := w.finish(); err != nil {
		return err
	}
	w.raw(make([]byte, 2*blockSize))
	return w.err
}

// finish pads the entry to a whole block.
func (w *Writer) finish() error {
	if w.err == nil && w.left > 0 {
		w.err = ErrLength
	}
	w.raw(zeros[:w.pad])
	w.pad = 0
	return w.err
}

var zeros [blockSize]byte

func (w *Writer) raw(p []byte) {
	if w.err == nil && len(p) > 0 {
		_, w.err = w.w.Write(p)
	}
}

// header writes a block with its magic and checksum.
func (w *Writer) header(b *block) {
	copy(b.bytes(fMagic), "ustar\x0000")
	copy(b.bytes(fChecksum), octal(b.checksum(), 7))
	b[fChecksum.off+7] = ' '
	w.raw(b[:])
}

// extension writes the PAX records of the entry that follows.
func (w *Writer) extension(records []byte) {
	var b block
	copy(b.bytes(fName), "pax")
	b[fType.off] = typePAX
	b.number(fMode, "", 0o644, nil)
	b.number(fUID, "", 0, nil)
	b.number(fGID, "", 0, nil)
	b.number(fMod, "", 0, nil)
	b.number(fSize, "", int64(len(records)), nil)
	w.header(&b)
	w.raw(records)
	w.raw(zeros[:padding(int64(len(records)))])
}

// number writes v in octal, or as a record of that key where it does not fit.
func (b *block) number(f field, key string, v int64, records []byte) []byte {
	if v < 0 || v >= 1<<(3*(f.len-1)) {
		copy(b.bytes(f), octal(0, f.len))
		if key == "" {
			return records
		}
		return appendRecord(records, key, strconv.FormatInt(v, 10))
	}
	copy(b.bytes(f), octal(v, f.len))
	return records
}

// octal is v in n-1 digits and a NUL.
func octal(v int64, n int) string {
	digits := make([]byte, n)
	for i := n - 2; i >= 0; i-- {
		digits[i] = '0' + byte(v&7)
		v >>= 3
	}
	return string(digits)
}

// split cuts a name at a slash so that both parts fit ustar's fields.
func split(name string) (prefix, base string, ok bool) {
	for i := min(len(name)-2, fPrefix.len); i > 0; i-- {
		if name[i] == '/' && len(name)-i-1 <= fName.len {
			return name[:i], name[i+1:], true
		}
	}
	return "", "", false
}

// appendRecord adds "length key=value\n", where length counts itself.
func appendRecord(b []byte, key, value string) []byte {
	n := len(key) + len(value) + 3
	total := n + len(strconv.Itoa(n))
	if more := n + len(strconv.Itoa(total)); more != total {
		total = more
	}
	b = strconv.AppendInt(b, int64(total), 10)
	b = append(b, ' ')
	b = append(b, key...)
	b = append(b, '=')
	b = append(b, value...)
	return append(b, '\n')
}

// sparseMap is the head of a sparse file's content: the number of extents, then
// offset and length of each, a line each, padded to whole blocks.
func sparseMap(h *Header) []byte {
	b := strconv.AppendInt(nil, int64(len(h.Data)), 10)
	for _, e := range h.Data {
		b = append(b, '\n')
		b = strconv.AppendInt(b, e.Offset, 10)
		b = append(b, '\n')
		b = strconv.AppendInt(b, e.Length, 10)
	}
	b = append(b, '\n')
	return append(b, zeros[:padding(int64(len(b)))]...)
}
