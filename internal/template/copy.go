package template

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// CopyStep puts files of an archive into the environment, as COPY of a Dockerfile does: of a source
// that is a directory the content, several sources into a directory, one file under the
// destination's name unless that ends with a slash or is a directory.
type CopyStep struct {
	Files FileArchive
	// Sources are names or patterns in the archive; * does not match a slash, ** matches
	// any number of directories. "." is all of it. Expanded.
	Sources []string
	Dest    string // expanded; relative to the directory so far
	Owner   string // "user" or "user:group", by name or number; empty: the user so far. Expanded.
	// Mode is octal; empty: as in the archive. A directory can also be searched by whom it lets read it.
	Mode string
}

// FileArchive is a tar, plain or compressed, that can be read several times.
type FileArchive struct {
	// Digest tells it from every other content.
	Digest string
	Open   func() (io.ReadCloser, error)
}

type owner struct {
	account
	mode int64 // -1: as in the archive
}

func (b *build) copyStep(ctx context.Context, st *Step) error {
	c, env := st.Copy, b.words(st)
	p := copyPlan{roots: map[string]bool{}}
	for _, s := range c.Sources {
		s, err := expand(s, env)
		if err != nil {
			return err
		}
		if err := p.source(s); err != nil {
			return err
		}
	}
	dest, err := expand(c.Dest, env)
	if err != nil {
		return err
	}
	if dest == "" || len(p.sources) == 0 {
		return errdefs.Userf(errdefs.InvalidArgument, "step COPY", "give sources and a destination", "it has no source or no destination")
	}
	p.into = strings.HasSuffix(dest, "/") || dest == "." || dest == ".."
	p.dest = strings.TrimPrefix(b.absolute(dest), "/")
	owns := c.Owner
	if owns == "" {
		owns = b.config.user
	}
	if owns, err = expand(owns, env); err != nil {
		return err
	}
	key := b.key("copy", c.Files.Digest, p.patterns(), p.dest, p.into, owns, c.Mode)
	if in, ok := b.recall(key, forever); ok && !st.Force {
		b.say("cached: " + st.Label)
		b.push(in, oneLine(st.Label))
		return nil
	}
	b.say(st.Label)
	view, err := layer.OpenView(b.infos)
	if err != nil {
		return err
	}
	defer view.Close()
	own, err := ownerOf(view, owns, c.Mode)
	if err != nil {
		return err
	}
	if err := c.Files.each(ctx, func(h *tar.Header, _ io.Reader) error { return p.scan(h) }); err != nil {
		return err
	}
	if err := p.settle(view); err != nil {
		return err
	}
	o := newOver(view)
	return b.write(ctx, st.Label, key, func(w *layer.Writer) error {
		return c.Files.each(ctx, func(h *tar.Header, r io.Reader) error { return p.put(w, o, own, h, r) })
	})
}

func ownerOf(view *layer.View, name, mode string) (owner, error) {
	out := owner{mode: -1}
	user, group, grouped := strings.Cut(name, ":")
	var err error
	if out.account, err = accountOf(view, user); err != nil {
		return out, err
	}
	if grouped && group != "" {
		if out.gid, err = groupOf(view, group); err != nil {
			return out, err
		}
	}
	if mode != "" {
		n, err := strconv.ParseUint(mode, 8, 12)
		if err != nil {
			return out, errdefs.Userf(errdefs.InvalidArgument, "mode "+oneLine(mode), "write it in octal, such as 0755", "not a mode")
		}
		out.mode = int64(n)
	}
	return out, nil
}

// each reads the archive once. Names are clean; what no layer can hold is an error.
func (a FileArchive) each(ctx context.Context, do func(h *tar.Header, r io.Reader) error) error {
	f, err := a.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := layer.Decompress(f)
	if err != nil {
		return err
	}
	defer r.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return errdefs.Userf(errdefs.InvalidArgument, "archive", "upload it again", "cannot be read: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name := path.Clean("/" + h.Name)[1:]
		if strings.Contains("/"+h.Name+"/", "/../") {
			return errdefs.Userf(errdefs.InvalidArgument, "archive", "keep files inside the build's directory", "%q leads out of it", h.Name)
		}
		h.Name = name
		if err := do(h, tr); err != nil {
			return err
		}
	}
}

// copyPlan says where each entry goes. It is made by a first reading of the archive.
type copyPlan struct {
	sources []source
	dest    string // resolved by settle
	into    bool   // dest is a directory
	// roots are the names that sources matched, and whether each is a directory.
	roots map[string]bool
}

type source struct {
	pattern string
	re      *regexp.Regexp
	found   bool
}

func (p *copyPlan) patterns() (out []string) {
	for _, s := range p.sources {
		out = append(out, s.pattern)
	}
	return out
}

func (p *copyPlan) source(pattern string) error {
	clean := path.Clean("/" + pattern)[1:]
	if strings.Contains("/"+pattern+"/", "/../") {
		return errdefs.Userf(errdefs.InvalidArgument, "source "+oneLine(pattern), "name files inside the build's directory", "it leads out of it")
	}
	re, err := regexp.Compile(globExpr(clean))
	if err != nil {
		return errdefs.Userf(errdefs.InvalidArgument, "source "+oneLine(pattern), "use *, ?, [a-z] and **", "not a pattern")
	}
	p.sources = append(p.sources, source{pattern: clean, re: re})
	return nil
}

// globExpr turns a pattern into a regular expression that matches whole names.
func globExpr(pattern string) string {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case strings.HasPrefix(pattern[i:], "**/"):
			b.WriteString(`(?:[^/]+/)*`)
			i += 2
		case strings.HasPrefix(pattern[i:], "**"):
			b.WriteString(`.+`)
			i++
		case c == '*':
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '[':
			end := strings.IndexByte(pattern[i:], ']')
			if end < 2 {
				b.WriteString(`\[`)
				continue
			}
			class := strings.ReplaceAll(pattern[i+1:i+end], `\`, `\\`)
			b.WriteString("[" + strings.ReplaceAll(class, "[", `\[`) + "]")
			i += end
		case c == '\\' && i+1 < len(pattern):
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	return b.String() + `\z`
}

// root gives the topmost directory above name, or name, that the source means.
func (s *source) root(name string) (string, bool) {
	if s.pattern == "" {
		return "", true
	}
	for i := 1; i <= len(name); i++ {
		if (i == len(name) || name[i] == '/') && s.re.MatchString(name[:i]) {
			return name[:i], true
		}
	}
	return "", false
}

func (p *copyPlan) scan(h *tar.Header) error {
	for i := range p.sources {
		s := &p.sources[i]
		root, ok := s.root(h.Name)
		if !ok {
			continue
		}
		s.found = true
		p.roots[root] = p.roots[root] || root != h.Name || h.Typeflag == tar.TypeDir
	}
	return nil
}

// settle decides what the destination is, once everything is known.
func (p *copyPlan) settle(view *layer.View) error {
	for _, s := range p.sources {
		if !s.found {
			return errdefs.Userf(errdefs.NotFound, "source "+oneLine(s.pattern), "check its name, and what .dockerignore leaves out", "no file of the build matches it")
		}
	}
	real, a, exists, err := view.Resolve(p.dest)
	if err != nil {
		return pathError("/"+p.dest, err)
	}
	directory := p.into || len(p.roots) > 1 || exists && a.IsDir()
	for _, isDir := range p.roots {
		directory = directory || isDir
	}
	if directory && exists && !a.IsDir() {
		return errdefs.Userf(errdefs.InvalidArgument, "path /"+p.dest, "choose another destination", "it is a file, and the sources need a directory")
	}
	p.dest, p.into = real, directory
	return nil
}

// targets are where an entry goes; several sources may mean it.
func (p *copyPlan) targets(name string) (out []string) {
	done := map[string]bool{}
	for i := range p.sources {
		root, ok := p.sources[i].root(name)
		if !ok || done[root] {
			continue
		}
		done[root] = true
		switch {
		case p.roots[root]:
			out = append(out, path.Join(p.dest, strings.TrimPrefix(name[len(root):], "/")))
		case p.into:
			out = append(out, path.Join(p.dest, path.Base(name)))
		default:
			out = append(out, p.dest)
		}
	}
	return out
}

// put writes an entry to its places.
func (p *copyPlan) put(w *layer.Writer, o *over, own owner, h *tar.Header, r io.Reader) error {
	targets := p.targets(h.Name)
	for i, target := range targets {
		if i > 0 && h.Typeflag == tar.TypeReg && h.Size > 0 {
			return errdefs.Userf(errdefs.InvalidArgument, "source "+h.Name, "name it once", "two sources mean it")
		}
		if target == "" {
			continue // the root itself
		}
		real, existing, err := o.place(w, target, own.account)
		if err != nil {
			return err
		}
		n := *h
		n.Name, n.Uid, n.Gid, n.Uname, n.Gname = real, own.uid, own.gid, "", ""
		switch {
		case existing && n.Typeflag == tar.TypeDir:
			if err := o.mkdirs(w, real, own.account); err != nil {
				return err
			}
			continue
		case existing:
			return errdefs.Userf(errdefs.InvalidArgument, "path /"+target, "choose another destination", "it is a directory and %q is not", h.Name)
		case n.Typeflag == tar.TypeDir:
			o.have[real] = true
		case n.Typeflag == tar.TypeLink:
			if n.Linkname, err = p.linked(w, o, own, h); err != nil {
				return err
			}
		}
		if own.mode >= 0 && n.Typeflag != tar.TypeSymlink {
			n.Mode = own.mode
			if n.Typeflag == tar.TypeDir {
				n.Mode |= own.mode & 0o444 >> 2
			}
		}
		if err := w.Add(&n, r); err != nil {
			return err
		}
	}
	return nil
}

// linked gives the place of a hard link's other name.
func (p *copyPlan) linked(w *layer.Writer, o *over, own owner, h *tar.Header) (string, error) {
	to := p.targets(path.Clean("/" + h.Linkname)[1:])
	if len(to) == 0 {
		return "", fmt.Errorf("%s: its hard link %s is not among the files", h.Name, h.Linkname)
	}
	real, _, err := o.place(w, to[0], own.account)
	return real, err
}
