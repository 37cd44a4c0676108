package cli

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// dockerBuild is `dsec template build` by a Dockerfile.
type dockerBuild struct {
	file, name, ready string
	args              []string
}

func (b *dockerBuild) run(ctx context.Context, e *Env, dir string, f *makeFlags) error {
	if len(f.init)+len(f.env) > 0 || f.specFile+f.cwd+f.user != "" {
		return usagef("--init, --env, --spec, --workdir and --user go with --debian: write RUN, ENV, WORKDIR and USER into the Dockerfile")
	}
	if b.file == "" {
		b.file = filepath.Join(dir, "Dockerfile")
	}
	text, err := os.ReadFile(b.file)
	if err != nil {
		return usagef("want a Dockerfile, or --debian RELEASE: %v", err)
	}
	if b.name == "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		b.name = strings.ToLower(filepath.Base(abs))
	}
	o := dsec.DockerfileOptions{Dockerfile: text, Ready: b.ready, Fresh: f.fresh, Args: map[string]string{}}
	for _, kv := range b.args {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			v, ok = os.LookupEnv(k)
		}
		if !ok || k == "" {
			return usagef("--build-arg %s: want NAME=VALUE, or the name of a variable that is set", kv)
		}
		o.Args[k] = v
	}
	keep, err := notIgnored(dir)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(packDir(w, dir, keep)) }()
	defer r.Close()
	o.Files = r
	return e.makeTemplate(ctx, func(ctx context.Context, s Templates, progress func(*dsecv1.Progress)) (*dsecv1.Template, error) {
		return s.BuildDockerfile(ctx, b.name, o, progress)
	})
}

// notIgnored tells what .dockerignore lets through.
func notIgnored(dir string) (func(name string) (bool, error), error) {
	f, err := os.Open(filepath.Join(dir, ".dockerignore"))
	if errors.Is(err, fs.ErrNotExist) {
		return func(string) (bool, error) { return true, nil }, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, err
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, usagef(".dockerignore: %v", err)
	}
	return func(name string) (bool, error) {
		ignored, err := m.MatchesOrParentMatches(name)
		return !ignored, err
	}, nil
}

// packDir writes the files of a directory as a tar. Links are kept as links; what is neither file,
// directory nor link is left out, as COPY leaves it.
func packDir(w io.Writer, dir string, keep func(string) (bool, error)) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if ok, err := keep(name); err != nil || !ok {
			return err // below an ignored directory something may be let through again
		}
		return packEntry(tw, p, name, d)
	})
	return errors.Join(err, tw.Close())
}

func packEntry(tw *tar.Writer, p, name string, d fs.DirEntry) error {
	in, err := d.Info()
	if err != nil {
		return err
	}
	mode := in.Mode()
	if !mode.IsRegular() && !mode.IsDir() && mode&fs.ModeSymlink == 0 {
		return nil
	}
	link := ""
	if mode&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(p); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(in, link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = path.Clean(name), "", ""
	if err := tw.WriteHeader(h); err != nil || !mode.IsRegular() {
		return err
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(tw, f)
	return err
}
