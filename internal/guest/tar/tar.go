// Package tar reads and writes tar streams for the guest: ustar with PAX records
// for what ustar cannot say (long names, big numbers, sparse files). It is small
// because package archive/tar links os/user and reflect into PID 1 of every box.
//
// Names are bytes: they need not be UTF-8. The reader takes what GNU tar, bsdtar
// and archive/tar write, bounds every length, and trusts nothing.
package tar

import "errors"

// Type of an entry.
type Type byte

const (
	TypeFile    Type = '0'
	TypeLink    Type = '1'
	TypeSymlink Type = '2'
	TypeChar    Type = '3'
	TypeBlock   Type = '4'
	TypeDir     Type = '5'
	TypeFifo    Type = '6'

	typeFileOld   = 0   // of tar before ustar
	typeCont      = '7' // a file to everybody who has no contiguous ones
	typePAX       = 'x'
	typeGlobal    = 'g'
	typeLongName  = 'L'
	typeLongLink  = 'K'
	typeGNUSparse = 'S'
)

// Header is one entry.
type Header struct {
	Name     string // directories may end in a slash
	Linkname string // of TypeLink and TypeSymlink
	Type     Type
	Mode     uint32 // permission, set-id and sticky bits
	UID, GID uint32
	Size     int64 // bytes of the file, holes included
	ModUnix  int64 // seconds
	// Data lists where a sparse file has data, in order; nil: everywhere. The
	// entry's content is that of the extents, one after the other.
	Data []Extent
}

// Extent is a run of data in a sparse file.
type Extent struct{ Offset, Length int64 }

// Stored is the number of content bytes that the archive holds for the entry.
func (h *Header) Stored() int64 {
	if h.Data == nil {
		return h.Size
	}
	var n int64
	for _, e := range h.Data {
		n += e.Length
	}
	return n
}

// ErrFormat is anything in a stream that is not tar, or over a limit.
var ErrFormat = errors.New("not a valid tar stream")

// ErrSparse is a sparse file in the old GNU form, which is not read.
var ErrSparse = errors.New("sparse file in the old GNU form")

const (
	blockSize = 512
	// maxName bounds names and link targets, maxRecords the extension
	// records of one entry, maxExtents the map of a sparse file.
	maxName    = 4096
	maxRecords = 64 << 10
	maxExtents = 1 << 16
	// A size near the end of int64 would overflow sums.
	maxSize = 1 << 60
)

// field is a place in the header block.
type field struct{ off, len int }

var (
	fName     = field{0, 100}
	fMode     = field{100, 8}
	fUID      = field{108, 8}
	fGID      = field{116, 8}
	fSize     = field{124, 12}
	fMod      = field{136, 12}
	fChecksum = field{148, 8}
	fType     = field{156, 1}
	fLink     = field{157, 100}
	fMagic    = field{257, 8}
	fPrefix   = field{345, 155}
)

type block [blockSize]byte

func (b *block) bytes(f field) []byte { return b[f.off : f.off+f.len] }

// text is a field up to its first NUL.
func (b *block) text(f field) string {
	s := b.bytes(f)
	for i, c := range s {
		if c == 0 {
			return string(s[:i])
		}
	}
	return string(s)
}

// checksum is the sum of all bytes with the checksum's own field as spaces.
func (b *block) checksum() int64 {
	var sum int64
	for i, c := range b {
		if i >= fChecksum.off && i < fChecksum.off+fChecksum.len {
			c = ' '
		}
		sum += int64(c)
	}
	return sum
}

func padding(n int64) int64 { return -n & (blockSize - 1) }
