package cli

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newCp(e *Env) *cobra.Command {
	var user string
	var mode uint32
	cmd := &cobra.Command{
		Use:   "cp [flags] SRC DST",
		Short: "Copy files and directories in and out of a session",
		Long: `Copy a file or a directory in or out of a session. One side is SESSION:PATH (the
path is absolute), the other a local path, or - for standard input or output.

A directory comes with all that is below it. When the destination is a directory
that exists, the source is put into it, as cp does. A directory copied to - is a
tar; - copied in is one file.`,
		Example: `  dsec cp data.csv $id:/workspace/data.csv
  dsec cp ./src $id:/workspace
  dsec cp $id:/workspace/out.txt -
  dsec cp $id:/workspace - | tar tv
  generate | dsec cp - $id:/workspace/input`,
		Args: nArgs(2, 2, "SRC and DST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, dst := parseSide(args[0]), parseSide(args[1])
			if (src.session == "") == (dst.session == "") {
				return usagef("want SESSION:/path on one side, and a local path or - on the other")
			}
			for _, s := range []side{src, dst} {
				if s.session != "" && !strings.HasPrefix(s.path, "/") {
					return usagef("%s:%s: the path in a session is absolute", s.session, s.path)
				}
			}
			client, err := e.Client()
			if err != nil {
				return err
			}
			p := e.progress()
			defer p.done()
			c := &copier{e: e, user: user, mode: mode, p: p}
			if src.session != "" {
				c.s = client.Session(src.session)
				return c.out(cmd.Context(), src.path, dst.path)
			}
			c.s = client.Session(dst.session)
			return c.in(cmd.Context(), src.path, dst.path)
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "user in the box who reads or owns the files (default the session's)")
	cmd.Flags().Uint32Var(&mode, "mode", 0, "mode of a file made from -, such as 0755")
	return cmd
}

// side is one end of a copy.
type side struct{ session, path string }

// parseSide tells SESSION:PATH from a local path: a session id has no slash or dot.
func parseSide(s string) side {
	id, p, ok := strings.Cut(s, ":")
	if !ok || id == "" || strings.ContainsAny(id, "/.") {
		return side{path: s}
	}
	return side{id, p}
}

// copier copies between one session and this machine.
type copier struct {
	e    *Env
	s    *dsec.Session
	user string
	mode uint32
	p    *progress
}

func (c *copier) in(ctx context.Context, src, dst string) error {
	if src == "-" {
		_, err := c.s.WriteFile(ctx, dst, c.counted(c.e.In, "sending", 0), dsec.WriteOptions{User: c.user, Mode: c.mode, Parents: true})
		return err
	}
	st, err := os.Stat(src)
	if err != nil {
		return err
	}
	if c.isDir(ctx, dst) {
		dst = path.Join(dst, path.Base(filepath.ToSlash(absolute(src))))
	} else if strings.HasSuffix(dst, "/") && !st.IsDir() {
		dst = path.Join(dst, filepath.Base(src))
	}
	if st.IsDir() {
		r, w := io.Pipe()
		go func() { w.CloseWithError(writeTar(w, src)) }()
		defer r.Close()
		return c.untar(ctx, dst, c.counted(r, "sending", 0))
	}
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = c.s.WriteFile(ctx, dst, f, dsec.WriteOptions{User: c.user, Mode: uint32(st.Mode().Perm()), Parents: true})
	return err
}

// untar sends a tree; the API unpacks it as the session's user.
func (c *copier) untar(ctx context.Context, dst string, r io.Reader) error {
	if c.user != "" {
		return usagef("--user: directories are unpacked as the session's user")
	}
	return c.s.Untar(ctx, dst, r)
}

func (c *copier) out(ctx context.Context, src, dst string) error {
	info, err := c.s.Stat(ctx, src, true)
	if err != nil {
		return err
	}
	dir := info.GetType() == dsecv1.FileType_FILE_TYPE_DIR
	if dst == "-" {
		return c.toStdout(ctx, src, dir)
	}
	if st, err := os.Stat(dst); err == nil && st.IsDir() {
		dst = filepath.Join(dst, path.Base(path.Clean(src)))
	} else if strings.HasSuffix(dst, "/") {
		return &os.PathError{Op: "cp", Path: dst, Err: os.ErrNotExist}
	}
	if dir {
		r, err := c.s.Tar(ctx, src)
		if err != nil {
			return err
		}
		defer r.Close()
		return extractTar(c.counted(r, "receiving", 0), dst)
	}
	r, err := c.s.ReadFile(ctx, src, dsec.ReadOptions{User: c.user})
	if err != nil {
		return err
	}
	defer r.Close()
	return writeLocal(dst, c.counted(r, "receiving", info.GetSize()), os.FileMode(info.GetMode()).Perm())
}

func (c *copier) toStdout(ctx context.Context, src string, dir bool) error {
	var r io.ReadCloser
	var err error
	if dir {
		if _, terminal := tty(c.e.Out); terminal {
			return usagef("a tar is not written to a terminal: redirect it, or name a directory")
		}
		r, err = c.s.Tar(ctx, src)
	} else {
		r, err = c.s.ReadFile(ctx, src, dsec.ReadOptions{User: c.user})
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if dir { // passed through the reader, so that a cut-off tar is an error here
		return copyTar(c.e.Out, r)
	}
	_, err = io.Copy(c.e.Out, r)
	return err
}

func copyTar(w io.Writer, r io.Reader) error {
	tee := io.TeeReader(r, w)
	tr := tar.NewReader(tee)
	for {
		if _, err := tr.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, tee)
	return err
}

// writeLocal replaces a file only when all of it has come.
func writeLocal(dst string, r io.Reader, perm os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(dst), "."+filepath.Base(dst)+".")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already after the rename
	_, err = io.Copy(tmp, r)
	err = errors.Join(err, tmp.Chmod(perm), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), dst)
}

func (c *copier) isDir(ctx context.Context, p string) bool {
	info, err := c.s.Stat(ctx, p, true)
	return err == nil && info.GetType() == dsecv1.FileType_FILE_TYPE_DIR
}

func absolute(p string) string {
	if a, err := filepath.Abs(p); err == nil {
		return a
	}
	return p
}

// counted shows how much has passed.
func (c *copier) counted(r io.Reader, what string, total int64) io.Reader {
	return &countedReader{r: r, p: c.p, what: what, total: total}
}

type countedReader struct {
	r        io.Reader
	p        *progress
	what     string
	n, total int64
}

func (c *countedReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if c.p.live {
		c.p.status(c.what + " " + size(c.n))
	}
	return n, err
}
