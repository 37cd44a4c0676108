package template

import (
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// notFound names what the caller may have meant.
func (s *Local) notFound(ref, name string) error {
	names, _ := s.names()
	var near []string
	for _, n := range names {
		if n == name {
			return errdefs.Userf(errdefs.NotFound, "template "+ref, "`dsec template ls` lists the versions", "there is no such version")
		}
		if strings.HasPrefix(n, name) || strings.HasPrefix(name, n) || distance(n, name) <= 1+len(name)/4 {
			near = append(near, n)
		}
	}
	remedy := "import or build it; `dsec template ls` lists those there are"
	if len(near) > 0 {
		remedy = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return errdefs.Userf(errdefs.NotFound, "template "+ref, remedy, "there is no such template")
}

// distance counts the single-byte edits between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
