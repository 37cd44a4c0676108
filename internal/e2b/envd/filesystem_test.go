package envd

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	pb "github.com/dsec-platform/dsec/gen/filesystem"
)

func TestFilesystem(t *testing.T) {
	b := newBench(t)
	f, dir := b.files(), t.TempDir()
	made, err := f.MakeDir(b.call(t), &pb.MakeDirRequest{Path: dir + "/a/b"})
	if err != nil || made.GetEntry().GetType() != pb.FileType_FILE_TYPE_DIRECTORY {
		t.Fatalf("%v %v", made, err)
	}
	_, err = f.MakeDir(b.call(t), &pb.MakeDirRequest{Path: dir + "/a/b"})
	wantCode(t, err, connect.CodeAlreadyExists)
	must(t, os.WriteFile(dir+"/a/f", []byte("hello"), 0o640))
	_, err = f.MakeDir(b.call(t), &pb.MakeDirRequest{Path: dir + "/a/f"})
	wantCode(t, err, connect.CodeInvalidArgument)

	st, err := f.Stat(b.call(t), &pb.StatRequest{Path: dir + "/a/f"})
	must(t, err)
	if e := st.GetEntry(); e.GetName() != "f" || e.GetPath() != dir+"/a/f" || e.GetSize() != 5 || e.GetMode() != 0o640 || e.GetPermissions() != "-rw-r-----" ||
		e.GetOwner() != b.user || e.GetGroup() == "" || time.Since(e.GetModifiedTime().AsTime()) > time.Hour || e.SymlinkTarget != nil || e.GetIsSymlink() {
		t.Errorf("%v", e)
	}
	_, err = f.Stat(b.call(t), &pb.StatRequest{Path: dir + "/none"})
	wantCode(t, err, connect.CodeNotFound)
	if st, err = f.Stat(b.call(t), &pb.StatRequest{}); err != nil || st.GetEntry().GetPath() != b.home {
		t.Errorf("%v %v", st, err)
	}

	must(t, os.Symlink("a", dir+"/link"))
	must(t, os.Symlink("nowhere", dir+"/broken"))
	list, err := f.ListDir(b.call(t), &pb.ListDirRequest{Path: dir, Depth: 2})
	must(t, err)
	var names []string
	for _, e := range list.GetEntries() {
		names = append(names, strings.TrimPrefix(e.GetPath(), dir)+" "+strings.TrimPrefix(e.GetType().String(), "FILE_TYPE_"))
	}
	if got := fmt.Sprint(names); got != "[/a DIRECTORY /a/b DIRECTORY /a/f FILE /broken UNSPECIFIED /link DIRECTORY]" {
		t.Errorf("%s", got)
	}
	for _, e := range list.GetEntries() {
		if want := map[string]string{"link": dir + "/a", "broken": dir + "/broken"}[e.GetName()]; e.GetSymlinkTarget() != want || e.GetIsSymlink() != (want != "") {
			t.Errorf("%v", e)
		}
	}
	if list, err = f.ListDir(b.call(t), &pb.ListDirRequest{Path: dir}); err != nil || len(list.GetEntries()) != 3 {
		t.Errorf("%v %v", list, err)
	}
	_, err = f.ListDir(b.call(t), &pb.ListDirRequest{Path: dir + "/a/f"})
	wantCode(t, err, connect.CodeInvalidArgument)
	_, err = f.ListDir(b.call(t), &pb.ListDirRequest{Path: dir + "/none"})
	wantCode(t, err, connect.CodeNotFound)

	must(t, os.WriteFile(dir+"/old", nil, 0o600))
	moved, err := f.Move(b.call(t), &pb.MoveRequest{Source: dir + "/a/f", Destination: dir + "/old"})
	if err != nil || moved.GetEntry().GetPath() != dir+"/old" || moved.GetEntry().GetSize() != 5 {
		t.Errorf("%v %v", moved, err)
	}
	_, err = f.Move(b.call(t), &pb.MoveRequest{Source: dir + "/a/f", Destination: dir + "/made/for/nothing"})
	wantCode(t, err, connect.CodeNotFound)
	if _, err := os.Stat(dir + "/made"); err == nil {
		t.Error("directories were made for nothing")
	}
	_, err = f.Move(b.call(t), &pb.MoveRequest{Source: dir + "/old"})
	wantCode(t, err, connect.CodeInvalidArgument)
	for range 2 {
		_, err = f.Remove(b.call(t), &pb.RemoveRequest{Path: dir + "/a"})
		must(t, err)
	}
	_, err = f.Remove(b.call(t), &pb.RemoveRequest{})
	wantCode(t, err, connect.CodeInvalidArgument)
	_, err = f.Stat(b.call(t, headerToken, "wrong"), &pb.StatRequest{Path: "/"})
	wantCode(t, err, connect.CodeUnauthenticated)
	_, err = f.Stat(b.call(t, "Authorization", basic("no-such-user")), &pb.StatRequest{Path: "/"})
	wantCode(t, err, connect.CodeUnauthenticated)
	// What is not known is not ignored.
	if res, text := b.do(t, "POST", "/filesystem.Filesystem/Stat", strings.NewReader(`{"path":"/","follow":true}`), "Content-Type", "application/json"); res.StatusCode != 501 || !strings.Contains(text, "follow") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	if res, text := b.do(t, "POST", "/filesystem.Filesystem/Stat", strings.NewReader(`{"path":{}}`), "Content-Type", "application/json"); res.StatusCode != 400 || !strings.Contains(text, "invalid_argument") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// Large listings are bounded together, small ones are not concerned, and an end gives back what was held.
func TestListingsAreBounded(t *testing.T) {
	b := newBench(t)
	f, dir := b.files(), t.TempDir()
	for i := range 3000 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%0200d", dir, i), nil, 0o600))
	}
	if got, err := f.ListDir(b.call(t), &pb.ListDirRequest{Path: dir}); err != nil || len(got.GetEntries()) != 3000 {
		t.Fatalf("%d entries, %v", len(got.GetEntries()), err)
	}
	if n := b.h.listings.Load(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
	b.h.listings.Add(maxListings)
	_, err := f.ListDir(b.call(t), &pb.ListDirRequest{Path: dir})
	wantCode(t, err, connect.CodeResourceExhausted)
	must(t, os.Mkdir(dir+"/small", 0o700))
	if _, err := f.ListDir(b.call(t), &pb.ListDirRequest{Path: dir + "/small"}); err != nil {
		t.Error(err)
	}
	if n := b.h.listings.Load(); n != maxListings {
		t.Errorf("%d bytes are held", n-maxListings)
	}
}

func TestFilesOfOthers(t *testing.T) {
	needRoot(t)
	b := newBench(t)
	dir, err := os.MkdirTemp("/tmp", "dsec-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	if res, text := b.do(t, "POST", "/files?username=daemon&path="+dir+"/x/f", strings.NewReader("y"), "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	st, err := b.files().Stat(b.call(t, "Authorization", basic("daemon")), &pb.StatRequest{Path: dir + "/x/f"})
	if err != nil || st.GetEntry().GetOwner() != "daemon" || st.GetEntry().GetGroup() != "daemon" {
		t.Errorf("%v %v", st, err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f, dir := b.files(), t.TempDir()
	must(t, os.WriteFile(dir+"/f", nil, 0o600))
	s, err := f.WatchDir(b.call(t, "Keepalive-Ping-Interval", "1"), &pb.WatchDirRequest{Path: dir, IncludeEntry: true})
	must(t, err)
	defer s.Close()
	first, err := s.Receive()
	if err != nil || first.GetStart() == nil {
		t.Fatalf("%v %v", first, err)
	}
	created, err := f.CreateWatcher(b.call(t), &pb.CreateWatcherRequest{Path: dir, Recursive: true})
	must(t, err)
	must(t, os.Mkdir(dir+"/sub", 0o755))
	must(t, os.WriteFile(dir+"/f", []byte("x"), 0o600))
	must(t, os.Rename(dir+"/f", dir+"/g"))
	must(t, os.Remove(dir+"/g"))
	seen, pings := map[string]*pb.FilesystemEvent{}, 0
	for seen["g REMOVE"] == nil || pings == 0 {
		m, err := s.Receive()
		must(t, err)
		if m.GetKeepalive() != nil {
			pings++
		}
		if e := m.GetFilesystem(); e != nil {
			seen[e.GetName()+" "+strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")] = e
		}
	}
	for _, want := range []string{"sub CREATE", "f WRITE", "f RENAME", "g CREATE", "g REMOVE"} {
		if seen[want] == nil {
			t.Errorf("%s is missing in %v", want, seen)
		}
	}
	if e := seen["sub CREATE"].GetEntry(); e.GetPath() != dir+"/sub" || seen["g REMOVE"].Entry != nil {
		t.Errorf("%v", seen)
	}
	must(t, os.WriteFile(dir+"/sub/deep", nil, 0o600))
	var names []string
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(fmt.Sprint(names), "sub/deep CREATE") && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got, err := f.GetWatcherEvents(b.call(t), &pb.GetWatcherEventsRequest{WatcherId: created.GetWatcherId()})
		must(t, err)
		for _, e := range got.GetEvents() {
			names = append(names, e.GetName()+" "+strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_"))
		}
	}
	// One write may be told several times.
	if got := fmt.Sprint(slices.Compact(names)); !strings.Contains(got, "sub CREATE f WRITE f RENAME g CREATE g REMOVE") || !strings.Contains(got, "sub/deep CREATE") {
		t.Errorf("%s", got)
	}
	_, err = f.RemoveWatcher(b.call(t), &pb.RemoveWatcherRequest{WatcherId: created.GetWatcherId()})
	must(t, err)
	_, err = f.GetWatcherEvents(b.call(t), &pb.GetWatcherEventsRequest{WatcherId: created.GetWatcherId()})
	wantCode(t, err, connect.CodeNotFound)
	_, err = f.RemoveWatcher(b.call(t), &pb.RemoveWatcherRequest{WatcherId: created.GetWatcherId()})
	wantCode(t, err, connect.CodeNotFound)
	_, err = f.CreateWatcher(b.call(t), &pb.CreateWatcherRequest{Path: dir + "/none"})
	wantCode(t, err, connect.CodeNotFound)
	_, err = f.CreateWatcher(b.call(t), &pb.CreateWatcherRequest{Path: dir + "/sub/deep"})
	wantCode(t, err, connect.CodeInvalidArgument)
	// One that is left behind, and whose directory goes, says why; another sandbox's is not found.
	left, err := f.CreateWatcher(b.call(t), &pb.CreateWatcherRequest{Path: dir + "/sub"})
	must(t, err)
	if _, err := b.h.watchers.get(left.GetWatcherId(), "another"); err == nil {
		t.Error("another sandbox's watcher was found")
	}
	must(t, os.RemoveAll(dir+"/sub"))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err = f.GetWatcherEvents(b.call(t), &pb.GetWatcherEventsRequest{WatcherId: left.GetWatcherId()})
		if err != nil || time.Now().After(deadline) {
			break
		}
	}
	wantCode(t, err, connect.CodeNotFound)
	for range maxWatchers {
		if _, err = f.CreateWatcher(b.call(t), &pb.CreateWatcherRequest{Path: dir}); err != nil {
			break
		}
	}
	wantCode(t, err, connect.CodeResourceExhausted)
}
