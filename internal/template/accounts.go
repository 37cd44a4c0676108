package template

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The account that sessions use unless they say otherwise.
const (
	userName = "user"
	userID   = 1000
	userHome = "/home/user"
)

type account struct{ uid, gid int }

// accounts adds the user to passwd, group and shadow. An account of that name
// that is there already is kept, whatever its numbers.
func (k *kit) accounts() (account, error) {
	passwd, attr, exists, err := k.read("etc/passwd")
	if err != nil {
		return account{}, err
	}
	if f := record(string(passwd), userName); len(f) >= 4 {
		uid, err1 := strconv.Atoi(f[2])
		gid, err2 := strconv.Atoi(f[3])
		if err1 == nil && err2 == nil {
			return account{uid, gid}, nil
		}
	}
	text := string(passwd)
	if !exists || record(text, "root") == nil {
		text = join("root:x:0:0:root:/root:"+k.shell(), text)
	}
	gid, err := k.group(!exists)
	if err != nil {
		return account{}, err
	}
	text = join(text, fmt.Sprintf("%s:x:%d:%d::%s:%s", userName, userID, gid, userHome, k.shell()))
	if !exists {
		text = join(text, "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin")
	}
	if err := k.file("etc/passwd", text+"\n", attr); err != nil {
		return account{}, err
	}
	return account{userID, gid}, k.shadow()
}

func (k *kit) group(fresh bool) (gid int, err error) {
	group, attr, _, err := k.read("etc/group")
	if err != nil {
		return 0, err
	}
	text := string(group)
	if f := record(text, userName); len(f) >= 3 {
		if gid, err := strconv.Atoi(f[2]); err == nil {
			return gid, nil
		}
	}
	if record(text, "root") == nil {
		text = join("root:x:0:", text)
	}
	text = join(text, fmt.Sprintf("%s:x:%d:", userName, userID))
	if fresh && record(text, "nogroup") == nil {
		text = join(text, "nogroup:x:65534:")
	}
	return userID, k.file("etc/group", text+"\n", attr)
}

// shadow locks the password of the new account where passwords are kept.
func (k *kit) shadow() error {
	shadow, attr, exists, err := k.read("etc/shadow")
	if err != nil || !exists || record(string(shadow), userName) != nil {
		return err
	}
	return k.file("etc/shadow", join(string(shadow), userName+":*:19000:0:99999:7:::")+"\n", attr)
}

func (k *kit) shell() string {
	if a, err := k.view.Stat("bin/bash"); err == nil && a.Mode&unix.S_IFMT == unix.S_IFREG {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// record gives the fields of the line whose first field is name, nil for none.
func record(text, name string) []string {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, name+":") {
			return strings.Split(line, ":")
		}
	}
	return nil
}

func join(lines ...string) string {
	var out []string
	for _, l := range lines {
		if l != "" {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}
