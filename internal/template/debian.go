package template

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

var (
	suiteRE   = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)
	packageRE = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9+.:=/~_-]*$`)
)

// defaultVariant is the smallest set that can still install packages.
const defaultVariant = "apt"

// debianCache is how long a build is taken again instead of asking the archive
// for newer packages.
const debianCache = 24 * time.Hour

// debian builds a root file system from Debian packages with mmdebstrap.
func (b *build) debian(ctx context.Context) error {
	src := &b.req.Source
	if src.Variant == "" {
		src.Variant = defaultVariant
	}
	if err := checkDebian(*src); err != nil {
		return err
	}
	packages := slices.Compact(slices.Sorted(slices.Values(src.Packages)))
	note := strings.TrimSpace("debian " + src.Ref + " " + strings.Join(packages, " "))
	mirrors := src.Mirrors
	if len(mirrors) == 0 {
		mirrors = hostSources("/etc/apt", src.Ref)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", src.Ref, src.Variant, packages, mirrors))
	key := "debian:" + hex.EncodeToString(sum[:])
	if in, ok := b.recall(key, debianCache); ok {
		b.progress(Progress{Stage: "debian", Message: "built less than a day ago, taken again"})
		b.push(in, note)
		return nil
	}
	in, err := b.mmdebstrap(ctx, packages, mirrors)
	if err != nil {
		return err
	}
	if err := b.remember(key, in); err != nil {
		return err
	}
	b.push(in, note)
	return nil
}

func checkDebian(src Source) error {
	if !suiteRE.MatchString(src.Ref) {
		return errdefs.Userf(errdefs.InvalidArgument, "suite "+src.Ref, "give a name such as bookworm", "not the name of a Debian suite")
	}
	if !suiteRE.MatchString(src.Variant) {
		return errdefs.Userf(errdefs.InvalidArgument, "variant "+src.Variant, "use apt, minbase or another variant of mmdebstrap", "not a variant")
	}
	for _, p := range src.Packages {
		if !packageRE.MatchString(p) {
			return errdefs.Userf(errdefs.InvalidArgument, "package "+p, "give package names, separated by commas", "not the name of a package")
		}
	}
	for _, m := range src.Mirrors {
		if !strings.Contains(m, "://") || strings.HasPrefix(m, "-") {
			return errdefs.Userf(errdefs.InvalidArgument, "mirror "+m, "give a URL, or a line that starts with deb", "not a mirror")
		}
	}
	return nil
}

func (b *build) mmdebstrap(ctx context.Context, packages, mirrors []string) (layer.Info, error) {
	tool, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return layer.Info{}, errdefs.Userf(errdefs.Unsupported, "debian build", "install it: apt-get install mmdebstrap", "mmdebstrap is not installed")
	}
	args := []string{"--variant=" + b.req.Source.Variant, "--format=tar",
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-include=/usr/share/locale/locale.alias",
		// These come from this machine; the toolkit brings a box's own.
		`--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"`,
	}
	if len(packages) > 0 {
		args = append(args, "--include="+strings.Join(packages, ","))
	}
	cmd := exec.CommandContext(ctx, tool, append(append(args, "--", b.req.Source.Ref, "-"), mirrors...)...)
	cmd.Stdin = nil
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	// It removes its work directory when it is asked to end.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	tail := &tailLines{}
	log := &lines{emit: func(line string) {
		tail.add(line)
		b.progress(Progress{Stage: "debian", Message: line})
	}}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return layer.Info{}, err
	}
	if err := cmd.Start(); err != nil {
		return layer.Info{}, err
	}
	in, err := b.s.layers.Write(ctx, layer.WriteOptions{}, func(w *layer.Writer) error {
		addErr := w.AddTar(out)
		if addErr != nil {
			cmd.Cancel()
		}
		io.Copy(io.Discard, out)
		runErr := cmd.Wait()
		log.flush()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if exit, ok := errors.AsType[*exec.ExitError](runErr); ok && (addErr == nil || exit.Exited()) {
			return errdefs.Userf(errdefs.InvalidArgument, "debian build", "check suite, packages and network", "mmdebstrap failed: %s", tail)
		}
		return errors.Join(addErr, runErr)
	})
	if cmd.ProcessState == nil { // fill was never called
		cmd.Cancel()
		cmd.Wait()
	}
	return in, err
}

// tailLines keeps the last lines of a tool's output.
type tailLines struct{ kept []string }

func (t *tailLines) add(line string) {
	t.kept = append(t.kept, line)
	if len(t.kept) > 12 {
		t.kept = t.kept[1:]
	}
}

func (t *tailLines) String() string {
	var b bytes.Buffer
	for _, l := range t.kept {
		if strings.HasPrefix(l, "E:") || strings.Contains(l, "rror") {
			b.WriteString(strings.TrimSpace(l) + "; ")
		}
	}
	if b.Len() == 0 {
		return strings.Join(t.kept, "; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}
