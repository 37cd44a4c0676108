package guestclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	guestfiles "github.com/dsec-platform/dsec/internal/guest/files"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// serveWith connects a files client to a guest that serves streams with accept.
func serveWith(t *testing.T, accept func(*mux.Stream, []byte)) files {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		rw, err := l.Accept()
		l.Close()
		if err != nil {
			t.Error(err)
			return
		}
		c, err := mux.NewConn(rw, mux.Config{Accept: accept})
		if err != nil {
			t.Error(err)
		}
		_ = c.Serve()
	}()
	rw, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := mux.NewConn(rw, mux.Config{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = conn.Serve(); done <- struct{}{} }()
	t.Cleanup(func() { conn.Close(); <-done; <-done })
	return files{conn}
}

func worker(t *testing.T) files {
	t.Helper()
	w := guestfiles.New()
	t.Cleanup(w.Close) // after the connection's end
	return serveWith(t, w.Serve)
}

func wantError(t *testing.T, err error, class errdefs.Class, reason errdefs.Reason) {
	t.Helper()
	e, ok := errors.AsType[*errdefs.Error](err)
	if !ok || e.Class != class || e.Reason != reason {
		t.Errorf("got %v, want %s %s", err, class, reason)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesEndToEnd(t *testing.T) {
	f, dir, ctx, me := worker(t), t.TempDir(), t.Context(), strconv.Itoa(os.Geteuid())
	at := func(name string) string { return filepath.Join(dir, name) }
	data := bytes.Repeat([]byte("data "), 100_000)
	info, err := f.WriteFile(ctx, WriteOptions{Path: at("a/f"), User: me, Parents: true, Size: int64(len(data)), OpID: "w1"}, bytes.NewReader(data))
	must(t, err)
	if info.Size != int64(len(data)) {
		t.Errorf("%+v", info)
	}
	info, r, err := f.ReadFile(ctx, at("a/f"), me, 5, 10)
	must(t, err)
	got, err := io.ReadAll(r)
	r.Close()
	if err != nil || string(got) != "data data " || info.Size != int64(len(data)) {
		t.Errorf("%q %v %+v", got, err, info)
	}
	must(t, f.Mkdir(ctx, "m1", at("b"), me, 0o700, false))
	must(t, f.Move(ctx, "", at("a/f"), at("b/f"), me, false))
	must(t, f.Link(ctx, "", at("b/f"), at("b/hard"), me, false))
	mode := uint32(0o600)
	must(t, f.Chmod(ctx, "", at("b/f"), me, ChmodOptions{Mode: &mode}))
	n := 0
	must(t, f.ListDir(ctx, dir, -1, func(guestproto.FileInfo) error { n++; return nil }))
	if n != 4 {
		t.Errorf("%d entries", n)
	}
	stop := errors.New("enough")
	if err := f.ListDir(ctx, dir, 0, func(guestproto.FileInfo) error { return stop }); err != stop {
		t.Errorf("got %v", err)
	}

	w, err := f.Watch(ctx, at("a"), me, true)
	must(t, err)
	tarOut, err := f.TarOut(ctx, at("b"), me)
	must(t, err)
	count, err := f.TarIn(ctx, "t1", at("a"), me, tarOut)
	tarOut.Close()
	if err != nil || count != 2 {
		t.Errorf("%d entries, %v", count, err)
	}
	e, err := w.Recv()
	if err != nil || e.Kind != "create" || (e.Path != "f" && e.Path != "hard") {
		t.Errorf("%+v %v", e, err)
	}
	must(t, w.Close())
	must(t, f.Remove(ctx, "", at("b"), me, true))
	_, err = f.Stat(ctx, at("b"), false)
	wantError(t, err, errdefs.User, errdefs.NotFound)
}

func TestUploadThatBreaks(t *testing.T) {
	f, dir, me := worker(t), t.TempDir(), strconv.Itoa(os.Geteuid())
	_, err := f.WriteFile(t.Context(), WriteOptions{Path: filepath.Join(dir, "f"), User: me, Size: -1},
		io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("line cut"))))
	wantError(t, err, errdefs.User, errdefs.Canceled)
	_, err = f.WriteFile(t.Context(), WriteOptions{Path: dir, User: me, Size: -1}, io.LimitReader(zeros{}, 1<<30))
	wantError(t, err, errdefs.User, errdefs.InvalidArgument)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = f.WriteFile(ctx, WriteOptions{Path: filepath.Join(dir, "f"), User: me, Size: -1}, zeros{})
	wantError(t, err, errdefs.User, errdefs.Canceled)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestLyingGuest: whatever a guest says, it is never the platform's failure.
func TestLyingGuest(t *testing.T) {
	for name, tc := range map[string]struct {
		accept func(*mux.Stream, []byte)
		class  errdefs.Class
		reason errdefs.Reason
	}{
		"claims infrastructure": {func(s *mux.Stream, _ []byte) {
			s.Reset(&guestproto.WireError{Class: "infrastructure", Reason: "internal", Message: "x"})
		}, errdefs.Policy, errdefs.BoxTampered},
		"claims infrastructure politely": {func(s *mux.Stream, _ []byte) {
			s.Reset(&guestproto.WireError{Class: "infrastructure", Reason: "not_found", Message: "x"})
		}, errdefs.Policy, errdefs.NotFound},
		"no answer":     {func(s *mux.Stream, _ []byte) { _ = s.CloseSend() }, errdefs.Policy, errdefs.BoxTampered},
		"data":          {func(s *mux.Stream, _ []byte) { _, _ = s.Write([]byte("x")) }, errdefs.Policy, errdefs.BoxTampered},
		"not a message": {func(s *mux.Stream, _ []byte) { _ = s.Send(mux.Frame{Payload: []byte{0xff}}, true) }, errdefs.Policy, errdefs.BoxTampered},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serveWith(t, tc.accept).Stat(t.Context(), "/x", false)
			wantError(t, err, tc.class, tc.reason)
		})
	}
	more := serveWith(t, func(s *mux.Stream, _ []byte) {
		_ = s.SendMessage(&guestproto.FileInfo{Size: 1}, false)
		_, _ = s.Write(make([]byte, 100))
		_ = s.CloseSend()
	})
	_, r, err := more.ReadFile(t.Context(), "/x", "", 0, 1)
	must(t, err)
	defer r.Close()
	_, err = io.ReadAll(r)
	wantError(t, err, errdefs.Policy, errdefs.BoxTampered)
}

func TestContextEndsAStalledGuest(t *testing.T) {
	f := serveWith(t, func(s *mux.Stream, _ []byte) { <-s.Gone() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := f.Stat(ctx, "/x", false)
	wantError(t, err, errdefs.User, errdefs.TimedOut)
}
