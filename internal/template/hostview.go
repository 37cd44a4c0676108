package template

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/layer"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// hostEtc is what programs below /usr need of /etc to work, and nothing that
// tells about this machine, its users or its secrets. Shell patterns.
var hostEtc = []string{
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
	"ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "crypto-policies", "ca-certificates/extracted",
	"mime.types", "magic", "magic.mime", "services", "protocols", "rpc", "ethertypes", "gai.conf",
	"os-release", "debian_version", "redhat-release", "system-release", "alpine-release", "arch-release", "lsb-release",
	"locale.alias", "locale.conf", "inputrc", "terminfo", "fonts/fonts.conf",
	"python3", "python3.*", "perl", "java-*", "groff", "ImageMagick-*", "glvnd", "OpenCL",
}

// hostTop are the top-level names that hold programs; each is shown as the host
// has it: a link as a link, a directory as a view.
var hostTop = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec"}

// hostMasked are local and optional software, and sources: not part of a host view.
var hostMasked = []string{"local", "src", "lib/debug"}

// hostView is what a base template is made of, read from the host.
type hostView struct {
	root        string
	files       []hostFile
	top         []hostFile // links and view points
	binds       []runtime.HostBind
	boot        string // boot id
	fingerprint string
}

type hostFile struct {
	name   string // below the root
	st     unix.Stat_t
	target string // of a link
}

// readHost looks at what a host view shows, without reading content.
func readHost(root string) (*hostView, error) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	v := &hostView{root: root, boot: string(bytes.TrimSpace(boot))}
	for _, name := range hostTop {
		if err := v.addTop(name); err != nil {
			return nil, err
		}
	}
	for _, pattern := range hostEtc {
		matches, err := filepath.Glob(filepath.Join(root, "etc", pattern))
		if err != nil {
			return nil, err
		}
		for _, m := range matches {
			if err := v.addTree(m); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(v.files, func(a, b hostFile) int { return strings.Compare(a.name, b.name) })
	v.fingerprint = v.sum()
	v.shortenCerts()
	return v, nil
}

// shortenCerts lets the hash links of the certificate directory lead straight to
// the certificates, and drops the named links between: half the files of a view.
func (v *hostView) shortenCerts() {
	const dir = "etc/ssl/certs/"
	named := map[string]string{}
	for _, f := range v.files {
		if strings.HasPrefix(f.name, dir) && path.IsAbs(f.target) {
			named[strings.TrimPrefix(f.name, dir)] = f.target
		}
	}
	reached := map[string]bool{}
	for i, f := range v.files {
		if target, ok := named[f.target]; ok && strings.HasPrefix(f.name, dir) {
			v.files[i].target = target
			reached[dir+f.target] = true
		}
	}
	v.files = slices.DeleteFunc(v.files, func(f hostFile) bool { return reached[f.name] })
}

func (v *hostView) addTop(name string) error {
	p := filepath.Join(v.root, name)
	f := hostFile{name: name}
	if err := unix.Lstat(p, &f.st); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return err
	}
	switch f.st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := os.Readlink(p)
		if err != nil {
			return err
		}
		f.target = target
	case unix.S_IFDIR:
		bind := runtime.HostBind{Source: p, Target: "/" + name}
		for _, m := range hostMasked {
			if st, err := os.Stat(filepath.Join(p, m)); name == "usr" && err == nil && st.IsDir() {
				bind.Masked = append(bind.Masked, m)
			}
		}
		v.binds = append(v.binds, bind)
	default:
		return nil
	}
	v.top = append(v.top, f)
	return nil
}

// addTree takes a file, link or directory of /etc with what is below it, where
// everybody may read it: what the host keeps from its own users, it keeps from boxes.
func (v *hostView) addTree(p string) error {
	return filepath.WalkDir(p, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return skipUnreadable(err)
		}
		rel, err := filepath.Rel(v.root, p)
		if err != nil {
			return err
		}
		f := hostFile{name: rel}
		if err := unix.Lstat(p, &f.st); err != nil {
			return skipUnreadable(err)
		}
		switch f.st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			if f.st.Mode&0o5 != 0o5 || d.Name() == "private" {
				return fs.SkipDir
			}
		case unix.S_IFREG:
			if f.st.Mode&0o4 == 0 || strings.HasSuffix(d.Name(), ".key") {
				return nil
			}
		case unix.S_IFLNK:
			if strings.HasSuffix(rel, ".gz") {
				return nil // manual pages: most of the alternatives, and none are needed
			}
			if f.target, err = os.Readlink(p); err != nil {
				return skipUnreadable(err)
			}
		default:
			return nil
		}
		v.files = append(v.files, f)
		return nil
	})
}

// skipUnreadable passes over files that went away, and what we may not read.
func skipUnreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// sum changes whenever a source of the view does, and at each boot, because the
// copy is not flushed to disk.
func (v *hostView) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "host view 1\n%s\n%+v\n", v.boot, v.binds)
	for _, f := range slices.Concat(v.top, v.files) {
		// The times of a view's own directory say nothing: it is shown, not copied.
		mtime, size := f.st.Mtim.Nano(), f.st.Size
		if f.st.Mode&unix.S_IFMT == unix.S_IFDIR && !strings.Contains(f.name, "/") {
			mtime, size = 0, 0
		}
		fmt.Fprintf(h, "%q %o %d %d %d %d %q\n", f.name, f.st.Mode, f.st.Ino, f.st.Dev, mtime, size, f.target)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// write puts the skeleton into a layer: view points, the copied part of /etc, and
// our own accounts and settings.
func (v *hostView) write(w *layer.Writer) error {
	if err := w.Add(&tar.Header{Typeflag: tar.TypeDir, Mode: 0o755, ModTime: kitTime}, nil); err != nil {
		return err
	}
	for _, f := range v.top {
		h := &tar.Header{Typeflag: tar.TypeDir, Name: f.name, Mode: 0o755, ModTime: kitTime}
		if f.target != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.target
		}
		if err := w.Add(h, nil); err != nil {
			return err
		}
	}
	if err := v.addOwn(w); err != nil {
		return err
	}
	for _, f := range v.files {
		if err := v.copyFile(w, f); err != nil {
			return err
		}
	}
	return nil
}

func (v *hostView) copyFile(w *layer.Writer, f hostFile) error {
	h := &tar.Header{Name: f.name, Mode: int64(f.st.Mode & 0o755), ModTime: kitTime}
	switch f.st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
		return w.Add(h, nil)
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.target
		return w.Add(h, nil)
	}
	file, err := os.OpenFile(path.Join(v.root, f.name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return skipUnreadable(err)
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, int64(len(b))
	return w.Add(h, bytes.NewReader(b))
}
