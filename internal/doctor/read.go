package doctor

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// read gives a file's text without surrounding space; "" when it is absent.
func (r *report) read(name string) string {
	b, err := fs.ReadFile(r.h.FS, strings.TrimPrefix(name, "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (r *report) exists(name string) bool {
	_, err := fs.Stat(r.h.FS, strings.TrimPrefix(name, "/"))
	return err == nil
}

// number reads a file that holds one number; ok is false when it does not, or
// when the number is "max" (which is reported as the largest one).
func (r *report) number(name string) (n int64, ok bool) {
	s := r.read(name)
	if s == "max" {
		return 1<<63 - 1, true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// mount is one line of mountinfo.
type mount struct{ point, fstype, options string }

func (r *report) mounts() []mount {
	var out []mount
	for _, line := range strings.Split(r.read("/proc/self/mountinfo"), "\n") {
		left, right, ok := strings.Cut(line, " - ")
		l, rt := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(rt) < 3 {
			continue
		}
		out = append(out, mount{point: unescape(l[4]), fstype: rt[0], options: l[5] + "," + rt[2]})
	}
	return out
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func hasWord(list, word string) bool {
	return slices.Contains(strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' }), word)
}
