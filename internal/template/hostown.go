package template

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"

	"github.com/dsec-platform/dsec/internal/layer"
)

// addOwn writes what a host view has of its own instead of the host's.
func (v *hostView) addOwn(w *layer.Writer) error {
	for _, m := range mountPoints {
		id := 0
		if m.user {
			id = userID
		}
		h := &tar.Header{Typeflag: tar.TypeDir, Name: m.path, Mode: m.mode, Uid: id, Gid: id, ModTime: kitTime}
		if err := w.Add(h, nil); err != nil {
			return err
		}
	}
	shell := "/bin/sh"
	if _, err := os.Stat(filepath.Join(v.root, "bin/bash")); err == nil {
		shell = "/bin/bash"
	}
	for _, f := range []struct {
		name, data string
		mode       int64
	}{
		{"etc/passwd", join(
			"root:x:0:0:root:/root:"+shell,
			"daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin",
			"user:x:1000:1000::"+userHome+":"+shell,
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin") + "\n", 0o644},
		{"etc/group", join("root:x:0:", "daemon:x:1:", "tty:x:5:", "user:x:1000:", "nogroup:x:65534:") + "\n", 0o644},
		{"etc/shadow", join("root:*:19000:0:99999:7:::", "user:*:19000:0:99999:7:::", "nobody:*:19000:0:99999:7:::") + "\n", 0o640},
		{"etc/hosts", hostsFile, 0o644},
		{"etc/hostname", "localhost\n", 0o644},
		{"etc/resolv.conf", resolvFile, 0o644},
		{"etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n", 0o644},
		{"etc/host.conf", "multi on\n", 0o644},
		{"etc/shells", join("/bin/sh", "/bin/bash") + "\n", 0o644},
		{"etc/profile", "export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin}\n", 0o644},
	} {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: kitTime}
		if err := w.Add(h, strings.NewReader(f.data)); err != nil {
			return err
		}
	}
	h := &tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/mtab", Linkname: "../proc/self/mounts", ModTime: kitTime}
	return w.Add(h, nil)
}
