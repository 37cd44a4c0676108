package api_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/guestproto"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestFiles(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	ctx := t.Context()
	name := "/dir/a b\n\xff.txt"
	info, err := s.WriteFile(ctx, name, strings.NewReader("0123456789"), dsec.WriteOptions{Parents: true, Mode: 0o600})
	if err != nil || info.GetSize() != 10 || info.GetMode() != 0o600 || string(info.GetPathBytes()) != name {
		t.Fatal(info, err)
	}
	for _, tt := range []struct {
		o    dsec.ReadOptions
		want string
	}{{dsec.ReadOptions{}, "0123456789"}, {dsec.ReadOptions{Offset: 3}, "3456789"}, {dsec.ReadOptions{Offset: 3, Length: 2}, "34"}} {
		r, err := s.ReadFile(ctx, name, tt.o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != tt.want {
			t.Errorf("%+v: %q, %v", tt.o, got, err)
		}
	}
	if st, err := s.Stat(ctx, name, true); err != nil || st.GetSize() != 10 {
		t.Error(st, err)
	}
	n := 0
	for e, err := range s.ListDir(ctx, "/dir", 1) {
		if err != nil || !bytes.HasSuffix(e.GetNameBytes(), []byte("\xff.txt")) {
			t.Error(e, err)
		}
		n++
	}
	if n != 1 {
		t.Error("entries", n)
	}
	if err := s.Move(ctx, name, "/dir/b", true); err != nil {
		t.Error(err)
	}
	if err := s.Link(ctx, "b", "/dir/l", true); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(filepath.Join(w.guest(s.ID()).root, "dir/l")); err != nil || to != "b" {
		t.Error("a relative target became", to, err)
	}
	if err := s.Remove(ctx, "/dir", true); err != nil {
		t.Error(err)
	}
	if _, err := s.ReadFile(ctx, "/dir/b", dsec.ReadOptions{}); !dsec.IsReason(err, "not_found") {
		t.Error(err)
	}
	// A relative path is below /workspace.
	if _, err := s.WriteFile(ctx, "x/y", strings.NewReader("z"), dsec.WriteOptions{Parents: true}); err != nil {
		t.Error(err)
	}
	if st, err := s.Stat(ctx, "/workspace/x/y", false); err != nil || st.GetSize() != 1 {
		t.Error(st, err)
	}
}

func TestManyEntries(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	root := w.guest(s.ID()).root
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(root, "f"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+time.Duration(i).String()), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range s.ListDir(t.Context(), "/", 1) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1000 {
		t.Error(n)
	}
}

func TestRanges(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	if _, err := s.WriteFile(t.Context(), "/f", strings.NewReader("0123456789"), dsec.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	path := "/v1/sessions/" + s.ID() + "/files?path=/f"
	_, h, _ := w.curl("GET", path, "")
	etag := h.Get("Etag")
	for _, tt := range []struct {
		header []string
		status int
		body   string
		crange string
	}{
		{nil, 200, "0123456789", ""},
		{[]string{"Range", "bytes=2-4"}, 206, "234", "bytes 2-4/10"},
		{[]string{"Range", "bytes=8-99"}, 206, "89", "bytes 8-9/10"},
		{[]string{"Range", "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		{[]string{"Range", "bytes=-99"}, 206, "0123456789", "bytes 0-9/10"},
		{[]string{"Range", "bytes=10-"}, 416, "", "bytes */10"},
		{[]string{"Range", "bytes=0-1,3-4"}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=5-", "If-Range", etag}, 206, "56789", "bytes 5-9/10"},
		{[]string{"Range", "bytes=5-", "If-Range", `"other"`}, 200, "0123456789", ""},
	} {
		code, h, body := w.curl("GET", path, "", tt.header...)
		if code != tt.status || body != tt.body || h.Get("Content-Range") != tt.crange {
			t.Errorf("%v: %d %q %q", tt.header, code, body, h.Get("Content-Range"))
		}
	}
	code, h, body := w.curl("HEAD", path, "")
	if code != 200 || h.Get("Content-Length") != "10" || body != "" || h.Get("Dsec-File-Type") != "file" {
		t.Error("HEAD", code, h)
	}
	for _, bad := range []string{"files?path=/f&colour=red", "files", "files?path=/f&user=a:b", "dial?addr=x", "dial?network=raw&addr=x:1", "nope"} {
		code, _, body := w.curl("GET", "/v1/sessions/"+s.ID()+"/"+bad, "")
		if d := detail(t, body); code/100 != 4 || d["class"] != "user" || d["remedy"] == "" {
			t.Errorf("%s: %d %s", bad, code, body)
		}
	}
	for _, bad := range []string{"mode=99", "append=maybe", "offset=3", "op_id=a/b"} {
		code, _, body := w.curl("PUT", path+"&"+bad, "x")
		if code != 400 {
			t.Errorf("%s: %d %s", bad, code, body)
		}
	}
	if code, _, body := w.curl("GET", "/v1/sessions/"+s.ID()+"/files?path=/f", "", "Range", "bytes=x-"); code != 400 || detail(t, body)["object"] != "header Range" {
		t.Error(code, body)
	}
}

// A file whose reading fails is an error before its first byte, and a broken
// transfer of a living server after it: never a connection that says nothing.
func TestReadingBreaks(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	_, err := s.ReadFile(t.Context(), "/breaks/after/0", dsec.ReadOptions{})
	if e := new(dsec.Error); !errors.As(err, &e) || e.Class != dsec.ClassUser {
		t.Errorf("before the first byte: %v", err)
	}
	for _, n := range []int{1, 100, 300_000} {
		rc, err := s.ReadFile(t.Context(), fmt.Sprintf("/breaks/after/%d", n), dsec.ReadOptions{})
		if err != nil {
			t.Errorf("after %d bytes: %v", n, err)
			continue
		}
		if b, err := io.ReadAll(rc); err == nil || len(b) > n {
			t.Errorf("after %d bytes: %d bytes, %v", n, len(b), err)
		}
		rc.Close()
	}
}

// An upload whose client dies leaves the old file.
func TestBrokenUpload(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	if _, err := s.WriteFile(t.Context(), "/f", strings.NewReader("old"), dsec.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "PUT /v1/sessions/"+s.ID()+"/files?path=/f HTTP/1.1\r\nHost: x\r\nX-API-Key: "+w.key+"\r\nContent-Length: 100\r\n\r\nnew")
	for g := w.guest(s.ID()); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		n := g.writes
		g.mu.Unlock()
		if n == 2 {
			break
		}
	}
	conn.Close()
	time.Sleep(50 * time.Millisecond)
	entries, _ := os.ReadDir(w.guest(s.ID()).root)
	data, err := os.ReadFile(filepath.Join(w.guest(s.ID()).root, "f"))
	if err != nil || string(data) != "old" || len(entries) != 1 {
		t.Errorf("%q %v, %d entries", data, err, len(entries))
	}
}

func TestTar(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	var plain bytes.Buffer
	tw := tar.NewWriter(&plain)
	tw.WriteHeader(&tar.Header{Name: "d/f", Size: 5, Mode: 0o644})
	tw.Write([]byte("hello"))
	tw.Close()
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	g.Write(plain.Bytes())
	g.Close()
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	z.Write(plain.Bytes())
	z.Close()
	for name, body := range map[string]*bytes.Buffer{"plain": &plain, "gzip": &gz, "zstd": &zs} {
		if err := s.Untar(t.Context(), "/"+name, bytes.NewReader(body.Bytes())); err != nil {
			t.Fatal(name, err)
		}
		r, err := s.Tar(t.Context(), "/"+name)
		if err != nil {
			t.Fatal(name, err)
		}
		tr := tar.NewReader(r)
		found := false
		for h, err := tr.Next(); err == nil; h, err = tr.Next() {
			data, _ := io.ReadAll(tr)
			found = found || h.Name == "d/f" && string(data) == "hello"
		}
		r.Close()
		if !found {
			t.Error(name, "did not come back")
		}
	}
	if _, err := s.Tar(t.Context(), "/nope"); !dsec.IsReason(err, "not_found") {
		t.Error(err)
	}
	if err := s.Untar(t.Context(), "/x", strings.NewReader("this is no tar, not at all"+strings.Repeat(".", 1024))); !dsec.IsReason(err, "invalid_argument") {
		t.Error(err)
	}
}

func TestDial(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c) // until the other side's half-close
		io.WriteString(c, strings.ToUpper(string(all)))
	}()
	c, err := s.Dial(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello")
	c.(interface{ CloseWrite() error }).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "HELLO" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if _, err := s.Dial(t.Context(), "tcp", "127.0.0.1:1"); !dsec.IsReason(err, "not_found") {
		t.Error(err)
	}
	if _, err := s.Dial(t.Context(), "udp", "127.0.0.1:1"); !dsec.IsReason(err, "invalid_argument") {
		t.Error(err)
	}
}

func TestWatch(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	w.guest(s.ID()).changes <- guestproto.WatchEvent{Kind: "create", Path: "a"}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for ev, err := range s.Watch(ctx, "/", true) {
		if err != nil || ev.GetKind() != "create" || ev.GetPath() != "a" {
			t.Error(ev, err)
		}
		return
	}
	t.Error("nothing came")
}

func TestTemplates(t *testing.T) {
	w := newWorld(t)
	code, _, body := w.curl("PUT", "/v1/templates/mine?init=true", "not really a tar")
	if code/100 == 2 || len(w.templates.imported) != 0 {
		t.Error("what is no tar was taken:", code, body)
	}
	var tarball bytes.Buffer
	tw := tar.NewWriter(&tarball)
	tw.WriteHeader(&tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755})
	tw.Close()
	code, _, body = w.curl("PUT", "/v1/templates/mine?init=true", tarball.String())
	if code != 200 || len(w.templates.imported) != 1 || w.templates.imported[0].Init[0] != "true" {
		t.Fatal(code, body)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(w.templates.imported[0].Source.Ref)), "*")); len(left) != 0 {
		t.Error("left on disk:", left)
	}
	steps := 0
	made, err := w.client(dsec.Options{}).ImportTemplate(t.Context(), &dsecv1.ImportTemplateRequest{Name: "py", Source: &dsecv1.ImportTemplateRequest_Image{Image: "docker.io/library/python:3"}},
		func(p *dsec.Progress) { steps++ })
	if err != nil || made.GetName() != "py" || steps != 1 {
		t.Error(made, steps, err)
	}
	if _, err := w.client(dsec.Options{}).ImportTemplate(t.Context(), &dsecv1.ImportTemplateRequest{Name: "py", Source: &dsecv1.ImportTemplateRequest_Path{Path: "/"}}, nil); !dsec.IsReason(err, "forbidden") {
		t.Error("a path of the server by key:", err)
	}
}

// TestBytesInBoundedMemory moves a large file both ways and looks at the heap.
// DSEC_TEST_BYTES makes it larger.
func TestBytesInBoundedMemory(t *testing.T) {
	size := int64(256 << 20)
	if os.Getenv("DSEC_TEST_BYTES") == "2G" {
		size = 2 << 30
	}
	if testing.Short() {
		size = 64 << 20
	}
	w := newWorld(t)
	s := w.session()
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	stop := make(chan struct{})
	peak := make(chan uint64)
	go func() {
		top := uint64(0)
		for {
			select {
			case <-stop:
				peak <- top
				return
			case <-time.After(5 * time.Millisecond):
				runtime.ReadMemStats(&now)
				top = max(top, now.HeapSys-now.HeapReleased)
			}
		}
	}()
	start := time.Now()
	info, err := s.WriteFile(t.Context(), "/null", io.LimitReader(zeros{}, size), dsec.WriteOptions{})
	if err != nil || info.GetSize() != size {
		t.Error("up:", info, err)
	}
	up := time.Since(start)
	start = time.Now()
	r, err := s.ReadFile(t.Context(), "/zeros/"+strconv.FormatInt(size, 10), dsec.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r)
	r.Close()
	if err != nil || n != size {
		t.Error("down:", n, err)
	}
	down := time.Since(start)
	close(stop)
	grown := int64(<-peak) - int64(before.HeapSys-before.HeapReleased)
	t.Logf("%d MiB up in %v, down in %v, heap grew by %d KiB", size>>20, up, down, grown>>10)
	if grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}
