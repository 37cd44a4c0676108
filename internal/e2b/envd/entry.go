package envd

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/dsec-platform/dsec/gen/filesystem"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// entry is what a client is told of a file. A symbolic link has the type and mode of what it
// leads to; one that leads nowhere has none.
func entry(i *guestproto.FileInfo) *pb.EntryInfo {
	e := &pb.EntryInfo{
		Name: utf8Text(path.Base(i.Path)), Type: entryType(i.Type), Path: utf8Text(i.Path), Size: i.Size,
		Mode: i.Mode & 0o777, Permissions: fileMode(i).String(),
		Owner: utf8Text(orNumber(i.User, i.UID)), Group: utf8Text(orNumber(i.Group, i.GID)),
		ModifiedTime: timestamppb.New(time.Unix(0, i.ModUnix)), Metadata: metadata(i.Attrs),
	}
	if i.Type == guestproto.TypeSymlink {
		e.IsSymlink = true
		target := utf8Text(i.LeadsTo)
		e.Type, e.Mode = entryType(i.LeadsToType), i.LeadsToMode&0o777
		if target == "" {
			target = e.Path
		}
		e.SymlinkTarget = &target
	}
	return e
}

func entryType(t guestproto.FileType) pb.FileType {
	switch t {
	case guestproto.TypeFile:
		return pb.FileType_FILE_TYPE_FILE
	case guestproto.TypeDir:
		return pb.FileType_FILE_TYPE_DIRECTORY
	}
	return pb.FileType_FILE_TYPE_UNSPECIFIED
}

// fileMode is the mode in the form whose text clients know.
func fileMode(i *guestproto.FileInfo) fs.FileMode {
	m := fs.FileMode(i.Mode & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if i.Mode&bit != 0 {
			m |= flag
		}
	}
	switch i.Type {
	case guestproto.TypeDir:
		m |= fs.ModeDir
	case guestproto.TypeSymlink:
		m |= fs.ModeSymlink
	case guestproto.TypeFifo:
		m |= fs.ModeNamedPipe
	case guestproto.TypeSocket:
		m |= fs.ModeSocket
	case guestproto.TypeDevice:
		m |= fs.ModeDevice
	}
	return m
}

func orNumber(name string, id uint32) string {
	if name != "" {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// byPath orders a tree as one who walks it by name: what is in a directory comes right after it.
func byPath(a, b *pb.EntryInfo) int {
	return strings.Compare(strings.ReplaceAll(a.GetPath(), "/", "\x00"), strings.ReplaceAll(b.GetPath(), "/", "\x00"))
}
