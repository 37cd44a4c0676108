package template

import (
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// accountOf is a user of the layers' passwd, by name or number. Root and numbers need no entry.
func accountOf(view *layer.View, name string) (account, error) {
	uid, numeric := boxNumber(name)
	if name == "" {
		uid, numeric = 0, true
	}
	for _, f := range records(view, "etc/passwd") {
		if len(f) < 4 || f[0] != name && !(numeric && f[2] == strconv.Itoa(uid)) {
			continue
		}
		u, ok1 := boxNumber(f[2])
		g, ok2 := boxNumber(f[3])
		if ok1 && ok2 {
			return account{u, g}, nil
		}
	}
	switch {
	case numeric:
		return account{uid, uid}, nil
	case name == "root":
		return account{}, nil
	case strings.Contains(name, ":"):
		return account{}, errdefs.Userf(errdefs.Unsupported, "user "+name, "name the user alone; its groups are those of /etc/group", "a group cannot be chosen")
	}
	return account{}, errdefs.Userf(errdefs.NotFound, "user "+name, "make it first: RUN useradd -m "+name, "the environment has no such user")
}

// groupOf is the number of a group.
func groupOf(view *layer.View, name string) (int, error) {
	if n, ok := boxNumber(name); ok {
		return n, nil
	}
	for _, f := range records(view, "etc/group") {
		if len(f) >= 3 && f[0] == name {
			if n, ok := boxNumber(f[2]); ok {
				return n, nil
			}
		}
	}
	if name == "root" {
		return 0, nil
	}
	return 0, errdefs.Userf(errdefs.NotFound, "group "+name, "make it first: RUN groupadd "+name, "the environment has no such group")
}

func records(view *layer.View, file string) (out [][]string) {
	b, _, err := view.ReadFile(file, 4<<20)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		out = append(out, strings.Split(strings.TrimRight(line, "\n"), ":"))
	}
	return out
}

// boxNumber reads an id that a box can have.
func boxNumber(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil
}
