package build

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
)

// uploadRoom is what a project's archives may still take while some are being sent. Bytes are taken before
// they are read, so that archives that come at the same time do not together take more.
type uploadRoom struct {
	s       *Service
	project string

	mu    sync.Mutex
	users int // Service.mu
	left  int64
}

var errNoRoom = errors.New("the project has no room for it")

// room begins an upload. What is there is counted when the first begins, what is sent from then on as it comes.
func (s *Service) room(project, dir string) *uploadRoom {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rooms[project]
	if r == nil {
		r = &uploadRoom{s: s, project: project, left: s.cfg.MaxUploads - uploaded(dir)}
		s.rooms[project] = r
	}
	r.users++
	return r
}

// leave ends an upload. What is kept of it stays counted until the last has ended: then the directory tells.
// Service.mu is held.
func (r *uploadRoom) leave() {
	if r.users--; r.users == 0 {
		delete(r.s.rooms, r.project)
	}
}

func (r *uploadRoom) take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left < n {
		return false
	}
	r.left -= n
	return true
}

func (r *uploadRoom) give(n int64) {
	r.mu.Lock()
	r.left += n
	r.mu.Unlock()
}

// reserved reads an archive as far as there is room for it.
type reserved struct {
	io.Reader
	room *uploadRoom
	read int64
	kept bool
}

func (r *reserved) leave() {
	if !r.kept {
		r.room.give(r.read)
	}
	s := r.room.s
	s.mu.Lock()
	defer s.mu.Unlock()
	r.room.leave()
}

func (r *reserved) Read(p []byte) (int, error) {
	if left := r.room.s.cfg.MaxUpload - r.read; int64(len(p)) > left {
		p = p[:max(left, 1)] // one more, which tells the end from too much
	}
	want := int64(len(p))
	for !r.room.take(want) {
		if want == 1 {
			return 0, r.atEnd()
		}
		want /= 2
	}
	n, err := r.Reader.Read(p[:want])
	r.room.give(want - int64(n))
	if r.read += int64(n); r.read > r.room.s.cfg.MaxUpload {
		return 0, errNoRoom
	}
	return n, err
}

// atEnd tells whether what is there was all.
func (r *reserved) atEnd() error {
	var one [1]byte
	n, err := io.ReadFull(r.Reader, one[:])
	if n > 0 {
		return errNoRoom
	}
	return err
}

// uploaded is what a project's archives take, without those that are being sent.
func uploaded(dir string) (n int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if in, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), ".new-") {
			n += in.Size()
		}
	}
	return n
}
