package guest

import (
	"slices"
	"strings"
	"testing"
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
