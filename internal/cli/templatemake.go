package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/specwire"
)

// makeFlags are common to import and build.
type makeFlags struct {
	init, env           []string
	specFile, cwd, user string
	fresh               bool
}

// register adds them; short is the letter of --spec.
func (f *makeFlags) register(cmd *cobra.Command, short string) {
	cmd.Flags().StringArrayVar(&f.init, "init", nil, "shell command run once, now, as root and without network, and kept as a layer (may be given again)")
	cmd.Flags().StringVarP(&f.specFile, "spec", short, "", "file with a sandbox_spec: the defaults of its sessions")
	cmd.Flags().StringArrayVarP(&f.env, "env", "e", nil, "environment variable of its sessions, NAME=VALUE (may be given again)")
	cmd.Flags().StringVarP(&f.cwd, "workdir", "w", "", "working directory of its sessions")
	cmd.Flags().StringVarP(&f.user, "user", "u", "", "user of its sessions")
	cmd.Flags().BoolVar(&f.fresh, "fresh", false, "run builds and init commands again even when their result is kept")
}

func (f *makeFlags) spec(e *Env) (*dsecv1.Spec, error) {
	if f.specFile == "" {
		return nil, nil
	}
	doc, err := e.readSpec(f.specFile)
	if err != nil {
		return nil, err
	}
	if doc.Sandbox == nil {
		return nil, usagef("%s: holds no sandbox_spec", f.specFile)
	}
	return specwire.To(doc.Sandbox), nil
}

func newTemplateImport(e *Env) *cobra.Command {
	var f makeFlags
	var platform, name string
	var insecure bool
	cmd := &cobra.Command{
		Use:   "import NAME SOURCE",
		Short: "Make a template from an image, a tar or a directory",
		Long: `Make a template from an image of a registry, or from a path: an OCI layout, a tar
of "docker save", or a root file system as a tar or directory. An existing path
(or one that begins with / or .) is taken as such, anything else as an image; a
prefix tells them apart: oci: for an image, tar:, dir:, archive: or oci-layout: for
a path.`,
		Example: `  dsec template import python docker.io/library/python:3.12-slim
  dsec template import mine ./image.tar
  dsec template import tools /srv/rootfs --init 'chmod -R a+rX /opt/data'`,
		Args: nArgs(1, 2, "NAME and SOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sp, err := f.spec(e)
			if err != nil {
				return err
			}
			if name != "" {
				args = append([]string{name}, args...)
			}
			if len(args) != 2 {
				return usagef("dsec template import: want NAME and SOURCE")
			}
			r := &dsecv1.ImportTemplateRequest{Name: args[0], Platform: platform, Init: f.init, Spec: sp, Env: f.env, Cwd: f.cwd, User: f.user, Fresh: f.fresh, Insecure: insecure}
			image, path, err := source(args[1])
			if err != nil {
				return err
			}
			if path != "" {
				r.Source = &dsecv1.ImportTemplateRequest_Path{Path: path}
			} else {
				r.Source = &dsecv1.ImportTemplateRequest_Image{Image: image}
			}
			return e.makeTemplate(cmd.Context(), func(ctx context.Context, s Templates, progress func(*dsecv1.Progress)) (*dsecv1.Template, error) {
				return s.Import(ctx, r, progress)
			})
		},
	}
	f.register(cmd, "f")
	cmd.Flags().StringVar(&platform, "platform", "", "platform of a multi-platform image, such as linux/amd64 (default the server's)")
	cmd.Flags().StringVar(&name, "name", "", "name of the template, instead of the first argument")
	cmd.Flags().BoolVar(&insecure, "insecure", false, "talk plain HTTP to the registry")
	return cmd
}

// source tells an image from a path, which is made absolute.
func source(s string) (image, path string, err error) {
	kind, rest, ok := strings.Cut(s, ":")
	if ok && rest != "" {
		switch kind {
		case "oci":
			return rest, "", nil
		case "tar", "dir", "archive", "oci-layout":
			path, err = filepath.Abs(rest)
			return "", path, err
		}
	}
	if _, err := os.Stat(s); err == nil || strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		path, err = filepath.Abs(s)
		return "", path, err
	}
	return s, "", nil
}

func newTemplateBuild(e *Env) *cobra.Command {
	var f makeFlags
	var docker dockerBuild
	var debian, variant string
	var packages, mirrors []string
	cmd := &cobra.Command{
		Use:   "build DIR | NAME --debian RELEASE",
		Short: "Make a template by a Dockerfile, or from a distribution's packages",
		Long: `Make a template by a Dockerfile and the files of a directory, or, with --debian, from a
distribution's packages.

A Dockerfile has one stage here: FROM an image or a template, RUN, COPY, ADD, ENV, ARG, WORKDIR,
USER; ENTRYPOINT and CMD are started in every session. RUN runs in a box, as sessions do.`,
		Example: `  dsec template build . --name app
  dsec template build -f docker/Dockerfile --name app --build-arg VERSION=3 .
  dsec template build debian --debian bookworm --packages python3,git,build-essential
  dsec template build graded --debian bookworm --packages python3 --init 'useradd -m grader' --init 'python3 -m compileall -q /usr/lib/python3'`,
		Args: nArgs(1, 1, "DIR, or NAME and --debian RELEASE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case debian == "":
				if len(packages)+len(mirrors) > 0 || variant != "" {
					return usagef("--packages, --variant and --mirror go with --debian RELEASE, such as --debian bookworm")
				}
				return docker.run(cmd.Context(), e, args[0], &f)
			case docker.file+docker.name+docker.ready != "" || len(docker.args) > 0:
				return usagef("--file, --name, --ready and --build-arg do not go with --debian")
			}
			sp, err := f.spec(e)
			if err != nil {
				return err
			}
			r := &dsecv1.BuildTemplateRequest{Name: args[0], Debian: debian, Packages: packages, Variant: variant, Mirrors: mirrors, Init: f.init, Spec: sp, Env: f.env, Cwd: f.cwd, User: f.user, Fresh: f.fresh}
			return e.makeTemplate(cmd.Context(), func(ctx context.Context, s Templates, progress func(*dsecv1.Progress)) (*dsecv1.Template, error) {
				return s.Build(ctx, r, progress)
			})
		},
	}
	f.register(cmd, "")
	cmd.Flags().StringVarP(&docker.file, "file", "f", "", "the Dockerfile (default DIR/Dockerfile)")
	cmd.Flags().StringVar(&docker.name, "name", "", "name of the template that a Dockerfile makes (default the directory's)")
	cmd.Flags().StringArrayVar(&docker.args, "build-arg", nil, "value of an ARG, NAME=VALUE, or NAME to take it from the environment (may be given again)")
	cmd.Flags().StringVar(&docker.ready, "ready", "", "shell command that ends with 0 when the start command is up")
	cmd.Flags().StringVar(&debian, "debian", "", "Debian release, such as bookworm")
	cmd.Flags().StringSliceVar(&packages, "packages", nil, "packages to install, separated by commas")
	cmd.Flags().StringVar(&variant, "variant", "", "what mmdebstrap starts from (default apt: the essential packages and apt)")
	cmd.Flags().StringArrayVar(&mirrors, "mirror", nil, "package source instead of the server's own (may be given again)")
	return cmd
}

func (e *Env) makeTemplate(ctx context.Context, do func(context.Context, Templates, func(*dsecv1.Progress)) (*dsecv1.Template, error)) error {
	store, err := e.templates(ctx)
	if err != nil {
		return err
	}
	p := e.progress()
	t, err := do(ctx, store, func(s *dsecv1.Progress) {
		what := s.GetStage()
		if m := s.GetMessage(); m != "" {
			what += ": " + m
		}
		p.step(what, s.GetDone(), s.GetTotal())
	})
	p.done()
	if err != nil {
		return err
	}
	if e.JSON() {
		return printMessage(e.Out, t)
	}
	writeAll(e.Out, fmt.Sprintf("%s@%s  %s in %d layers\n", t.GetName(), t.GetVersion(), size(t.GetSize()), len(t.GetLayers())))
	return nil
}
