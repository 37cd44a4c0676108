package template

import (
	"archive/tar"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

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
