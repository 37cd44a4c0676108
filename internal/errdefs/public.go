package errdefs

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// aPath stands for a path of the server's.
const aPath = "a file of the server"

// hostPath finds absolute paths, but not those of URLs.
var hostPath = regexp.MustCompile(`(^|[\s"'(=:,])/[^/\s:"'),;][^\s:"'),;]*`)

// Public gives err as somebody may see it who does not run the server: without the paths of its files,
// which its log has. Paths in a box stay: no error of the platform itself is about one.
func Public(err error) *Error {
	e := From(err)
	if e == nil {
		return nil
	}
	hide := strings.NewReplacer(pathsOf(e.Cause)...).Replace
	if e.Class == Infrastructure {
		named := hide
		hide = func(s string) string { return hostPath.ReplaceAllString(named(s), "${1}"+aPath) }
	}
	out := *e
	out.Object, out.Message, out.Remedy = hide(e.Object), hide(e.Message), hide(e.Remedy)
	return &out
}

// pathsOf gives the paths that the system's errors in a chain name, each with what stands for it.
func pathsOf(err error) (pairs []string) {
	add := func(paths ...string) {
		for _, p := range paths {
			if strings.HasPrefix(p, "/") && len(p) > 1 {
				pairs = append(pairs, p, aPath)
			}
		}
	}
	for err != nil {
		switch e := err.(type) {
		case *fs.PathError:
			add(e.Path)
		case *os.LinkError:
			add(e.Old, e.New)
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				pairs = append(pairs, pathsOf(one)...)
			}
			return pairs
		}
		err = errors.Unwrap(err)
	}
	return pairs
}
