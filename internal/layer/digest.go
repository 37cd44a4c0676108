package layer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// digestHeader starts the canonical form; another form gets another header.
const digestHeader = "dsec layer 1\n"

type treeSum struct {
	digest    string
	bytes     int64 // content, links counted once each
	entries   int
	imageSize int64
}

// sumTree computes the digest of a tree: SHA-256 over one record an entry, in
// the order of a depth-first walk that sorts names by byte. A record is the type
// (d f l p w), then path, mode, uid, gid, mtime in seconds, link target, attributes,
// and a file's size and content hash; every part is length-prefixed. Which names
// are links of one inode is not part of it: EROFS images made here do not keep
// that, and nobody can tell once overlay copied one up.
//
// also, when not nil, sees each entry, with the content passing through.
func sumTree(ctx context.Context, root *os.File, also func(e *entry, content io.Reader) error) (treeSum, error) {
	var sum treeSum
	h := sha256.New()
	io.WriteString(h, digestHeader)
	r := record{ownIDs: os.Geteuid() != 0}
	buf := make([]byte, 256<<10)
	err := walk(ctx, root, func(e *entry) error {
		sum.entries++
		var content []byte
		if e.kind() == unix.S_IFREG {
			f, err := e.openFile()
			if err != nil {
				return err
			}
			defer f.Close()
			sum.bytes += e.st.Size
			if content, err = hashContent(f, buf, e, also); err != nil {
				return err
			}
		} else if also != nil {
			if err := also(e, nil); err != nil {
				return err
			}
		}
		r.write(h, e, content)
		return nil
	})
	sum.digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return sum, err
}

func hashContent(f *os.File, buf []byte, e *entry, also func(*entry, io.Reader) error) ([]byte, error) {
	h := sha256.New()
	if also != nil {
		if err := also(e, io.TeeReader(f, h)); err != nil {
			return nil, err
		}
	} else if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, buf); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

type record struct {
	ownIDs bool // without root all files are the caller's: they count as root's
	buf    []byte
}

func (r *record) write(h hash.Hash, e *entry, content []byte) {
	uid, gid := uint64(e.st.Uid), uint64(e.st.Gid)
	if r.ownIDs {
		uid, gid = 0, 0
	}
	b := append(r.buf[:0], e.letter())
	b = appendString(b, e.path)
	for _, n := range []uint64{uint64(e.st.Mode & 0o7777), uid, gid, uint64(mtimeOf(&e.st))} {
		b = binary.AppendUvarint(b, n)
	}
	b = appendString(b, e.target)
	b = binary.AppendUvarint(b, uint64(len(e.xattrs)))
	for _, x := range e.xattrs {
		b = appendString(appendString(b, x.name), x.value)
	}
	if content != nil {
		b = binary.AppendUvarint(b, uint64(e.st.Size))
		b = append(b, content...)
	}
	r.buf = b
	h.Write(b)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
