package guest

import (
	"os"
	"testing"
)

func TestCounter(t *testing.T) {
	tests := map[string]int64{
		"":               0,
		"max 3":          3,
		"max 3\n":        3,
		"low 1\nmax 4\n": 4,
		"\nmaximum 2\n\nmax 12345678901234\nmax 5\n": 12345678901234,
		"max\nmax 5\n": 0,
		"max x\n":      0,
		"low 1\n":      0,
	}
	for content, want := range tests {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(content); err != nil {
			t.Fatal(err)
		}
		if got := counter(int(f.Fd()), "max"); got != want {
			t.Errorf("%q: %d", content, got)
		}
	}
	if got := counter(-1, "max"); got != 0 {
		t.Errorf("no file: %d", got)
	}
}
