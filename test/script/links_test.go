package script

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// What a document points to is there.
func TestLinks(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-co", "--exclude-standard", "--", "*.md")
	cmd.Dir = repo()
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("this is no git checkout: %v", err)
	}
	for doc := range strings.FieldsSeq(string(out)) {
		b, err := os.ReadFile(filepath.Join(repo(), doc))
		if err != nil {
			t.Error(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if to == "" || strings.Contains(to, ":") {
				continue // within the page, or not ours
			}
			if _, err := os.Stat(filepath.Join(repo(), filepath.Dir(doc), to)); err != nil {
				t.Errorf("%s points to %s, which is not there", doc, m[1])
			}
		}
	}
}
