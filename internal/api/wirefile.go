package api

import (
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

func wireFile(f *guestproto.FileInfo) *dsecv1.FileInfo {
	if f == nil {
		return nil
	}
	w := &dsecv1.FileInfo{
		Type: dsecv1.FileType(f.Type), Size: f.Size, Mode: f.Mode, Uid: f.UID, Gid: f.GID,
		User: utf8Text(f.User), Group: utf8Text(f.Group), Links: f.Links, Blocks: f.Blocks512,
		Modified: timestamppb.New(time.Unix(0, f.ModUnix)),
	}
	w.Path, w.PathBytes = wireName(f.Path)
	w.Name, w.NameBytes = wireName(f.Name)
	w.Target, w.TargetBytes = wireName(f.Target)
	return w
}

// wireName gives a name as text, and as bytes when the text cannot say it.
func wireName(s string) (string, []byte) {
	if utf8.ValidString(s) {
		return s, nil
	}
	return utf8Text(s), []byte(s)
}
