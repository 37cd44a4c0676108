package build

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// buildLog is the log of a build that runs: in memory for its readers, and in a file for later.
type buildLog struct {
	mu      sync.Mutex
	entries []Entry
	bytes   int
	full    bool
	file    *os.File
}

func openLog(path string) (*buildLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &buildLog{file: f}, nil
}

// add appends a line. Past the limits of a log only errors are taken.
func (l *buildLog) add(step int, level, message string) {
	e := Entry{Time: time.Now().UTC(), Level: level, Message: strings.ToValidUTF8(message, "\uFFFD"), Step: step}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full && level != "error" {
		return
	}
	l.append(e)
	if !l.full && (len(l.entries) >= maxLogEntries || l.bytes >= maxLogBytes) {
		l.full = true
		l.append(Entry{Time: e.Time, Level: "warn", Message: "the log has reached its limit; further output is left out", Step: step})
	}
}

func (l *buildLog) append(e Entry) {
	l.entries = append(l.entries, e)
	l.bytes += len(e.Message) + 100
	if b, err := json.Marshal(e); err == nil {
		_, _ = l.file.Write(append(b, '\n')) // a full disk costs a line, not the build
	}
}

func (l *buildLog) read() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[:len(l.entries):len(l.entries)]
}

// readLog gives the log of a build that has ended.
func readLog(path string) []Entry {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []Entry
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e Entry
		if json.Unmarshal(s.Bytes(), &e) == nil { // the last line may be half
			out = append(out, e)
		}
	}
	return out
}

// Log gives what a build has said so far.
func (s *Service) Log(project, template, id string) ([]Entry, error) {
	s.mu.Lock()
	b, err := s.build(project, template, id)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	log := b.log
	s.mu.Unlock()
	if log != nil {
		return log.read(), nil
	}
	return readLog(filepath.Join(s.cfg.Dir, "builds", id+".log")), nil
}
