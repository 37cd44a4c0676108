package layer

import (
	"archive/tar"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const maxDepth = 512

// cleanName gives an entry's name relative to the root, "" for the root itself.
// A leading slash is dropped, as tar does; ".." is refused.
func cleanName(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("the name has a NUL byte")
	}
	parts := strings.Split(name, "/")
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" || p == "." })
	for _, p := range parts {
		if p == ".." {
			return "", fmt.Errorf("the name leads out of its tree")
		}
		if len(p) > maxName {
			return "", fmt.Errorf("the name has a part of more than %d bytes", maxName)
		}
	}
	clean := strings.Join(parts, "/")
	if len(clean) > maxPath || len(parts) > maxDepth {
		return "", fmt.Errorf("the name is longer than %d bytes or deeper than %d directories", maxPath, maxDepth)
	}
	return clean, nil
}

func metaOf(h *tar.Header, overlay bool) meta {
	m := meta{mode: uint32(h.Mode) & 0o7777, uid: boxID(h.Uid), gid: boxID(h.Gid), mtime: clampTime(h.ModTime.Unix())}
	for k, v := range h.PAXRecords {
		if name, ok := strings.CutPrefix(k, paxXattr); ok {
			if x, ok := admitXattr(name, v, overlay); ok {
				m.xattrs = append(m.xattrs, x)
			}
		}
	}
	slices.SortFunc(m.xattrs, func(a, b xattr) int { return strings.Compare(a.name, b.name) })
	return m
}

// boxID gives the id that a box can map.
func boxID(id int) int {
	if id < 0 || id > maxID {
		return nobody
	}
	return id
}

// clampTime keeps times where every file system can store them.
func clampTime(sec int64) int64 { return min(max(sec, 0), 1<<33) }

func mtimeOf(st *unix.Stat_t) int64 { return clampTime(st.Mtim.Sec) }
