package guest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const passwd = "root:x:0:0:root:/root:/bin/bash\n" +
	"broken line\n:x:5:5::/:/bin/sh\nneg:x:-1:5::/:/bin/sh\nmax:x:4294967295:5::/:/bin/sh\nplus:x:+7:7::/:/bin/sh\n" +
	"user:x:1000:1000:a,b:/home/user:/bin/zsh\nuser:x:1001:1001::/other:/bin/sh\nlast:x:7:8::/l:/s"

const groups = "user:x:1000:\nsudo:x:27:other,user\nbad\nusers:x:100:user\nmine:x:1000:user\n"

func TestFindUser(t *testing.T) {
	tests := map[string]struct {
		want user
		ok   bool
	}{
		"root":       {user{name: "root", home: "/root", shell: "/bin/bash", groups: []uint32{0}}, true},
		"user":       {user{name: "user", uid: 1000, gid: 1000, home: "/home/user", shell: "/bin/zsh", groups: []uint32{1000, 27, 100}}, true},
		"1000":       {user{name: "user", uid: 1000, gid: 1000, home: "/home/user", shell: "/bin/zsh", groups: []uint32{1000, 27, 100}}, true},
		"last":       {user{name: "last", uid: 7, gid: 8, home: "/l", shell: "/s", groups: []uint32{8}}, true},
		"4242":       {user{name: "4242", uid: 4242, gid: 4242, groups: []uint32{4242}}, true},
		"nobody":     {user{}, false},
		"neg":        {user{}, false},
		"max":        {user{}, false},
		"plus":       {user{}, false},
		"":           {user{}, false},
		"4294967295": {user{}, false},
	}
	for name, tt := range tests {
		u, ok := findUser(name, []byte(passwd), func() []byte { return []byte(groups) })
		if ok != tt.ok || u.name != tt.want.name || u.uid != tt.want.uid || u.gid != tt.want.gid || u.home != tt.want.home || u.shell != tt.want.shell || !slices.Equal(u.groups, tt.want.groups) {
			t.Errorf("%q: %+v, %v", name, u, ok)
		}
	}
	if u, ok := findUser("root", nil, nil); !ok || u.uid != 0 || u.home != "/root" {
		t.Errorf("root of an empty box: %+v, %v", u, ok)
	}
}

// However passwd and group are changed, the next look finds what they are now.
func TestLookupUserSeesEveryChange(t *testing.T) {
	dir := t.TempDir()
	passwd, group := dir+"/passwd", dir+"/group"
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, name string, ok bool, uid uint32, home string, groups ...uint32) {
		t.Helper()
		u, found := lookupUserIn(passwd, group, name)
		if found != ok || u.uid != uid || u.home != home || !slices.Equal(u.groups, groups) {
			t.Errorf("%s: %+v, %v", what, u, found)
		}
	}
	check("no files", "u", false, 0, "")
	check("root without files", "root", true, 0, "/root")
	write(passwd, "u:x:1001:1001::/a:/bin/sh\n")
	check("no group file", "u", true, 1001, "/a", 1001)
	write(group, "g:x:7:u\n")
	check("a group", "u", true, 1001, "/a", 1001, 7)
	for i := range 20 { // in place, of the same size, within one tick of the clock
		uid := uint32(1002 + i)
		write(passwd, "u:x:"+itoa(int(uid))+":1001::/a:/bin/sh\n")
		write(group, "g:x:"+itoa(i%10)+":u\n")
		check("in place", "u", true, uid, "/a", 1001, uint32(i%10))
	}
	write(dir+"/new", "u:x:1001:1001::/b:/bin/sh\nv:x:5:5::/v:/bin/sh\n")
	if err := os.Rename(dir+"/new", passwd); err != nil {
		t.Fatal(err)
	}
	write(group, "g:x:7:u,v\n")
	check("renamed over", "u", true, 1001, "/b", 1001, 7)
	check("by number", "5", true, 5, "/v", 5, 7)

	f, err := os.OpenFile(passwd, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	m[4] = '2'
	check("by mmap", "u", true, 2001, "/b", 1001, 7)
	m[4] = '3' // no time stamp says so
	check("by mmap again", "u", true, 3001, "/b", 1001, 7)

	write(passwd, strings.Repeat("#\n", pumpChunk)+"u:x:9:9::/far:/bin/sh\n")
	check("a large file", "u", true, 9, "/far", 9, 7)
	for _, path := range []string{passwd, group} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	check("removed", "u", false, 0, "")
	if err := unix.Mkfifo(passwd, 0o644); err != nil {
		t.Fatal(err)
	}
	check("a fifo", "u", false, 0, "")
	check("a number without files", "9", true, 9, "", 9)
}

func FuzzFindUser(f *testing.F) {
	f.Add("user", []byte(passwd), []byte(groups))
	f.Fuzz(func(t *testing.T, name string, p, g []byte) {
		u, ok := findUser(name, p, func() []byte { return g })
		if ok && (u.uid == 1<<32-1 || u.gid == 1<<32-1 || len(u.groups) > maxGroups || strings.IndexByte(u.home, 0) >= 0) {
			t.Errorf("%+v", u)
		}
	})
}

func TestTableKeepsItsPromises(t *testing.T) {
	tab := newTable[*fileOp](3, 4)
	ended := func() *fileOp {
		f := &fileOp{done: make(chan struct{})}
		close(f.done)
		return f
	}
	running := &fileOp{done: make(chan struct{})}
	if _, created, _, _ := tab.add("r", running); !created {
		t.Fatal("not created")
	}
	for _, id := range []string{"a", "b", "c"} {
		if _, created, _, full := tab.add(id, ended()); !created || full {
			t.Fatalf("%s: %v %v", id, created, full)
		}
	}
	if _, ok, gone := tab.get("a"); ok || !gone {
		t.Error("a was not evicted")
	}
	if _, created, gone, _ := tab.add("a", ended()); created || !gone {
		t.Error("an evicted id ran again")
	}
	if e, created, _, _ := tab.add("r", ended()); created || e != running {
		t.Error("a running op was evicted or run again")
	}
	if got := len(tab.all()); got != 3 {
		t.Errorf("%d entries", got)
	}
}
