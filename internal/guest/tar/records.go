package tar

import (
	"io"
	"strconv"
	"strings"
)

// records are PAX extension records by key.
type records map[string]string

// parse adds the records of data: "length key=value\n" each.
func (m records) parse(data []byte) bool {
	s := string(data)
	for s != "" {
		length, _, ok := strings.Cut(s, " ")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n <= len(length)+1 || n > len(s) || s[n-1] != '\n' {
			return false
		}
		key, value, ok := strings.Cut(s[len(length)+1:n-1], "=")
		if !ok || key == "" {
			return false
		}
		m[key] = value
		s = s[n:]
	}
	return true
}

// record finds a key among the entry's own records, then the global ones. An empty value
// takes back a global one.
func (r *Reader) record(ext records, key string) (string, bool) {
	v, ok := ext[key]
	if !ok {
		v, ok = r.global[key]
	}
	return v, ok && v != ""
}

// sparse reads the map of a sparse file in PAX form 1.0, and only that.
func (r *Reader) sparse(h *Header, ext records) error {
	major, ok := ext["GNU.sparse.major"]
	if !ok {
		if _, old := ext["GNU.sparse.map"]; old {
			return ErrSparse
		}
		return nil
	}
	if major != "1" || ext["GNU.sparse.minor"] != "0" {
		return ErrSparse
	}
	size, ok := decimal(ext["GNU.sparse.realsize"])
	if !ok || size < 0 || size > maxSize {
		return ErrFormat
	}
	if name := ext["GNU.sparse.name"]; name != "" {
		h.Name = name
	}
	m := mapReader{r: r}
	count := m.number()
	if m.err != nil || count > maxExtents {
		return ErrFormat
	}
	h.Data = make([]Extent, 0, min(count, 1024))
	end := int64(0)
	for range count {
		e := Extent{m.number(), m.number()}
		if m.err != nil || e.Offset < end || e.Offset > size || e.Length > size-e.Offset {
			return ErrFormat
		}
		end = e.Offset + e.Length
		h.Data = append(h.Data, e)
	}
	h.Size = size
	if h.Stored() != r.left {
		return ErrFormat
	}
	return nil
}

// mapReader reads the lines of numbers at the head of a sparse file's content.
type mapReader struct {
	r   *Reader
	buf []byte
	b   block
	err error
}

func (m *mapReader) number() (n int64) {
	for digits := 0; m.err == nil; digits++ {
		if len(m.buf) == 0 {
			if _, m.err = io.ReadFull(m.r, m.b[:]); m.err != nil {
				return 0
			}
			m.buf = m.b[:]
		}
		c := m.buf[0]
		m.buf = m.buf[1:]
		switch {
		case c == '\n' && digits > 0:
			return n
		case c < '0' || c > '9' || n > maxSize/10:
			m.err = ErrFormat
		}
		n = 10*n + int64(c-'0')
	}
	return 0
}

// parse reads a number of a header: octal, or GNU's base 256.
func (b *block) parse(f field) (int64, bool) {
	s := b.bytes(f)
	if s[0]&0x80 != 0 {
		var v uint64
		negative := s[0]&0x40 != 0
		if negative {
			v = ^uint64(0)
		}
		for i, c := range s {
			if i == 0 {
				c &= 0x7f
				if negative {
					c |= 0x80
				}
			}
			if top := v >> 55; (!negative && top != 0) || (negative && top != 1<<9-1) {
				return 0, false
			}
			v = v<<8 | uint64(c)
		}
		return int64(v), true
	}
	t := strings.Trim(b.text(f), " ")
	if t == "" {
		return 0, true
	}
	v, err := strconv.ParseUint(t, 8, 63)
	return int64(v), err == nil
}

// decimal reads a record's number; a fraction is cut off (mtime has one).
func decimal(s string) (int64, bool) {
	whole, _, _ := strings.Cut(s, ".")
	v, err := strconv.ParseInt(whole, 10, 64)
	return v, err == nil
}
