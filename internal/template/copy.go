package template

import (
	"archive/tar"
	"context"
	"io"
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
		b.say("cached")
		b.push(in, oneLine(st.Label))
		return nil
	}
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
