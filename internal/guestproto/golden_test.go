package guestproto

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update-golden", false, "write golden files of messages that have none; existing ones are never changed")

// samples is one filled value of every message.
func samples() map[string]Message {
	result := Result{
		OpID: "op-1", ExitCode: -1, Signal: "SIGKILL", TimedOut: true, OOM: true, Limit: LimitMemory,
		WallMs: 1.5, UserMs: 0.25, SysMs: 2, PeakMemory: 1 << 30, ReadBytes: 512, WriteBytes: 1024,
		Stdout: Output{Head: []byte("he\x00ad"), Tail: []byte("tail\xff"), Dropped: 7, Total: 17}, Stderr: Output{Total: 0},
		Survivors: 2, Error: &WireError{Class: "user", Reason: "not_found", Object: "program x", Message: "m", Remedy: "r"},
	}
	info := result
	info.Stdout, info.Stderr, info.Error = Output{Total: 17, Dropped: 17}, Output{}, nil
	exec := ExecRequest{
		OpID: "op-1", Argv: []string{"echo", "", "\xff"}, Script: "s", Shell: "/bin/sh", ShellSession: "main",
		Env: []string{"A=b"}, Cwd: "/w", User: "user", StdinMode: StdinStream, Stdin: []byte("in"), PTY: true, Rows: 24, Cols: 80,
		TimeoutMs: 1000, MaxOutput: 4096, KillOnOutputLimit: true, Background: true,
	}
	return map[string]Message{
		"hello":          &Hello{Major: 1, Minor: 2, Build: "b", Features: []string{"x", "y"}, BootID: "id"},
		"wire_error":     result.Error,
		"exec_open":      &ExecOpen{Req: exec, Digest: []byte("digest"), Follow: true, StdinFollows: 1 << 20},
		"op_request":     &OpRequest{OpID: "o", Name: "n", Offset: 5, StderrOffset: 6, Data: []byte("d"), EOF: true, Rows: 1, Cols: 2, Signal: "SIGTERM", Tree: true},
		"dial_request":   &DialRequest{Network: "tcp", Addr: "127.0.0.1:80"},
		"reply":          &Reply{N: -3},
		"event_output":   &ExecEvent{Kind: EventOutput, Pid: 7, Stream: Stderr, Offset: 9, Data: []byte("x"), Dropped: 3},
		"event_exit":     &ExecEvent{Kind: EventExit, Result: &result},
		"op_info":        &OpInfo{OpID: "o", Pid: 4, Argv: []string{"a", "b"}, ShellSession: "s", User: "u", Cwd: "/", PTY: true, Running: true, Background: true, StartedUnix: 12, Survivors: 1, Result: &info},
		"file_request":   &FileRequest{OpID: "o", Path: "/p", To: "/t", User: "u", Offset: 1, Length: -1, Size: -1, Depth: 2, Mode: 0o644, Owner: "a:b", SetMode: true, SetOwner: true, Follow: true, Parents: true, Append: true, NoCreate: true, Recursive: true, Overwrite: true, Symbolic: true, Digest: []byte("d")},
		"file_info":      &FileInfo{Path: "/p", Name: "n\xff", Type: TypeSymlink, Size: 10, Mode: 0o4755, UID: 1, GID: 2, User: "u", Group: "g", ModUnix: -5, Target: "t", Links: 3, Blocks512: 8},
		"exec_open_2":    &ExecOpen{Req: ExecRequest{OpID: "op-2", Argv: []string{"a"}, HoldOutput: true, Note: "n\x00te"}},
		"op_info_2":      &OpInfo{OpID: "o", Note: "note"},
		"op_request_2":   &OpRequest{OpID: "o", Offset: FromNow, StderrOffset: FromNow},
		"file_request_2": &FileRequest{Path: "/p", Behalf: true, AttrPrefix: "user.x.", Attrs: []string{"a=b", "c=\xff"}},
		"file_info_2":    &FileInfo{Path: "/p", Type: TypeSymlink, LeadsTo: "/q", LeadsToType: TypeDir, LeadsToMode: 0o755, Attrs: []string{"a=b"}},
		"watch_event":    &WatchEvent{Kind: "create", Path: "a/b", Overflow: true},
		"setup":          &Setup{Kind: SetupClaim, FDs: []SetupFD{{Role: FDMount, Path: "/data"}}, Pooled: true, TmpSize: 5, WritableDirs: []string{"/w"}, Hostname: "h", User: "u", Env: []string{"A=b"}, NewPrivileges: true, Seccomp: []byte{1, 2}, NoFile: 1, FSize: 2, Stack: 3},
		"setup_failure":  &SetupReply{Error: &WireError{Class: "user", Reason: "not_found"}},
	}
}

// TestGolden: bytes that a release has sent decode for ever. A golden file is
// never rewritten; new fields get a message, and with it a file, of their own.
func TestGolden(t *testing.T) {
	const dir = "testdata/golden-v1"
	for name, want := range samples() {
		file := filepath.Join(dir, name+".hex")
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) && *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(hex.EncodeToString(Marshal(nil, want))+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v (run with -update-golden for a new message)", err)
			continue
		}
		raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface().(Message)
		if err := Unmarshal(raw, got); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
		// An unknown field of a later release is skipped.
		e := Encoder{Buf: append([]byte(nil), raw...)}
		e.Uint(1000, 5)
		e.String(1001, "later")
		e.Float(1002, 1)
		again := reflect.New(reflect.TypeOf(want).Elem()).Interface().(Message)
		if err := Unmarshal(e.Buf, again); err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%s with unknown fields: %+v, %v", name, again, err)
		}
	}
}

func FuzzMessages(f *testing.F) {
	list := samples()
	for _, m := range list {
		f.Add(Marshal(nil, m))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for name, m := range list {
			got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
			if Unmarshal(in, got) != nil {
				continue
			}
			// What was understood is understood the same way again.
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
			if err := Unmarshal(Marshal(nil, got), again); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
