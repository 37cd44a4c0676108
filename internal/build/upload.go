package build

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/dsec-platform/dsec/internal/ctxread"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
	"github.com/dsec-platform/dsec/internal/template"
)

var hashRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

// upload is the record of an archive, whose name a project chose and whose content only this digest tells.
type upload struct {
	Digest string `json:"digest"` // of the plain tar
	Size   int64  `json:"size"`
}

func (s *Service) uploadPath(project, hash string) (string, error) {
	if !hashRE.MatchString(hash) {
		return "", errdefs.Userf(errdefs.InvalidArgument, "files "+clip(hash), "give a SHA-256 in lowercase hexadecimal digits", "not a hash")
	}
	if project == "" || project[0] == '.' || strings.ContainsRune(project, '/') {
		return "", errdefs.Userf(errdefs.InvalidArgument, "project "+clip(project), "use another project", "its name cannot be a directory's")
	}
	return filepath.Join(s.cfg.Dir, "uploads", project, hash), nil
}

// HasUpload tells whether the project has uploaded the files of that hash. It keeps them for another week.
func (s *Service) HasUpload(project, hash string) (bool, error) {
	path, err := s.uploadPath(project, hash)
	if err != nil {
		return false, err
	}
	now := s.cfg.Now()
	err = os.Chtimes(path+".json", now, now)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Upload keeps an archive under the hash that the project knows it by, instead of an earlier one.
func (s *Service) Upload(ctx context.Context, project, hash string, r io.Reader) error {
	path, err := s.uploadPath(project, hash)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return kept("files "+hash, err)
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return kept("files "+hash, err)
	}
	defer os.Remove(f.Name())
	in := &reserved{Reader: ctxread.Reader(ctx, r), room: s.room(project, dir)}
	defer in.leave()
	n, err := io.Copy(f, in)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return errdefs.Limitf(errdefs.DiskFull, "files "+hash, "free space in the data directory", "do not fit on the server's disk")
	case errors.Is(err, errNoRoom):
		return errdefs.Limitf(errdefs.TooLarge, "files "+hash, "copy fewer files, see .dockerignore", "an archive may have %d bytes, and those of a project %d together", s.cfg.MaxUpload, s.cfg.MaxUploads)
	case err != nil:
		return err
	}
	is, err := template.ArchiveFile(f.Name())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(f.Name(), path+".tar"); err != nil {
		return kept("files "+hash, err)
	}
	in.kept = true
	return kept("files "+hash, jsonfile.Write(path+".json", upload{is.Digest, n}, false))
}

// Files gives the archive that the project has uploaded under a hash. That it is missing is told when
// it is opened.
func (s *Service) Files(project, hash string) (template.FileArchive, error) {
	path, err := s.uploadPath(project, hash)
	if err != nil {
		return template.FileArchive{}, err
	}
	var u upload
	if err := jsonfile.Read(path+".json", &u); err != nil {
		u.Digest = "missing"
	}
	return template.FileArchive{Digest: u.Digest, Open: func() (io.ReadCloser, error) {
		f, err := os.Open(path + ".tar")
		if err != nil {
			return nil, errdefs.Userf(errdefs.NotFound, "files "+hash, "upload them, then build again", "were not uploaded")
		}
		return f, nil
	}}, nil
}

// sweepUploads removes archives that were not asked for lately.
func (s *Service) sweepUploads(now time.Time) {
	root := filepath.Join(s.cfg.Dir, "uploads")
	projects, _ := os.ReadDir(root)
	for _, p := range projects {
		dir := filepath.Join(root, p.Name())
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			in, err := f.Info()
			if err != nil {
				continue
			}
			path := filepath.Join(dir, f.Name())
			if now.Sub(in.ModTime()) <= uploadLife {
				continue
			}
			record, tar := strings.CutSuffix(path, ".tar")
			if !tar {
				_ = os.Remove(path)
				_ = os.Remove(strings.TrimSuffix(path, ".json") + ".tar")
			} else if _, err := os.Stat(record + ".json"); err != nil { // a kill came between the two
				_ = os.Remove(path)
			}
		}
	}
}
