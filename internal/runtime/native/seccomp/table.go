package seccomp

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run gen.go

//go:embed syscalls_amd64.txt
var amd64Calls string

//go:embed syscalls_arm64.txt
var arm64Calls string

// table is one architecture's system calls.
type table struct {
	audit   uint32 // AUDIT_ARCH_*
	x32     bool   // numbers with bit 30 are a second ABI
	numbers map[string]uint32
}

const x32Bit = 0x40000000

var tables = sync.OnceValue(func() map[string]*table {
	return map[string]*table{
		"amd64": {audit: 0xC000003E, x32: true, numbers: parseTable(amd64Calls)},
		"arm64": {audit: 0xC00000B7, numbers: parseTable(arm64Calls)},
	}
})

func parseTable(s string) map[string]uint32 {
	m := make(map[string]uint32, 400)
	for line := range strings.Lines(s) {
		nr, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(nr, 10, 16)
		if err != nil {
			panic("seccomp: bad line in an embedded table: " + line)
		}
		m[name] = uint32(n)
	}
	return m
}

// known tells whether any architecture has the call: a spec is portable.
func known(name string) bool {
	for _, t := range tables() {
		if _, ok := t.numbers[name]; ok {
			return true
		}
	}
	return false
}

// nearMisses gives up to three known names that are likely meant by name.
func nearMisses(name string) []string {
	type miss struct {
		name string
		dist int
	}
	var found []miss
	low := strings.ToLower(name)
	for n := range tables()["amd64"].numbers {
		d := distance(low, n)
		if strings.HasPrefix(n, low) && low != "" {
			d = min(d, 2)
		}
		if d <= 1+len(low)/4 && d <= 3 {
			found = append(found, miss{n, d})
		}
	}
	slices.SortFunc(found, func(a, b miss) int {
		if a.dist != b.dist {
			return a.dist - b.dist
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for _, m := range found[:min(3, len(found))] {
		names = append(names, m.name)
	}
	return names
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
