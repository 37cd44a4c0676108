package spec

import (
	"fmt"
	"slices"
	"strings"
)

// synonyms are the words that other systems use for our fields.
var synonyms = map[string]string{
	"memory": "mem_limit", "mem": "mem_limit", "memory_limit": "mem_limit", "ram": "mem_limit",
	"cpu": "cpu_limit", "cpus": "cpu_limit", "cpu_count": "cpu_limit",
	"pids": "pid_limit", "pids_limit": "pid_limit",
	"volumes": "fs.mounts", "binds": "fs.mounts", "mount": "fs.mounts",
	"image": "the template, which is named at create, not in the spec",
	"env":   "the environment, which is given at create, not in the spec",
	"disk":  "fs.writable_size_limit", "disk_limit": "fs.writable_size_limit", "disk_size": "fs.writable_size_limit",
	"timeout": "session.max_runtime_seconds", "max_runtime": "max_runtime_seconds", "max_idle_time": "max_idle_seconds",
	"idle_timeout": "max_idle_seconds", "privileged": "user: root (a box is never privileged on the host)",
	"egress": "network.egress_policy", "policy": "egress_policy", "allow": "allow_extra",
	"readonly_rootfs": "fs.rootfs: readonly", "<<": "the values themselves (merge keys are not read)",
}

// unknownRemedy names the nearest known field, or lists them all.
func unknownRemedy(key string, fields map[string]int, path string) string {
	names := make([]string, 0, len(fields))
	for n := range fields {
		names = append(names, n)
	}
	slices.Sort(names)
	if near := Nearest(key, names); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	if s, ok := synonyms[strings.ToLower(key)]; ok {
		return "use " + s
	}
	if path == "" {
		path = "this level"
	}
	return fmt.Sprintf("known at %s: %s", path, strings.Join(names, ", "))
}

// Nearest gives the known word that word was most likely meant to be, or "".
func Nearest(word string, known []string) string {
	norm := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	best, bestD := "", 3
	if len(word) <= 4 {
		bestD = 2
	}
	if len(word) > 64 {
		return ""
	}
	for _, k := range known {
		if d := distance(norm(word), norm(k)); d < bestD {
			best, bestD = k, d
		}
	}
	return best
}

// distance is the number of edits (insert, delete, replace, swap of neighbours)
// between two words.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	prev2, prev, cur := rows[0], rows[1], rows[2]
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
