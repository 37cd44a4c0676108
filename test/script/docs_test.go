package script

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
)

// Documents whose sh blocks are run, each as one session of bash in the repository's root
// with the binary under test first in PATH. An output block after an sh block holds
// lines that its output must have, in order; a go block is a program.

// README sets up everything itself.
func TestReadme(t *testing.T) {
	needRoot(t)
	needs(t, "bash", "curl", "jq", "mmdebstrap", "go", "python3")
	runDocument(t, "README.md", nil)
}

// Other pages start where a server runs.
func TestPages(t *testing.T) {
	needRoot(t)
	needs(t, "bash", "curl", "jq")
	for _, doc := range []string{"docs/api.md", "docs/e2b.md", "examples/README.md"} {
		t.Run(doc, func(t *testing.T) {
			runDocument(t, doc, []string{
				"export DSEC_DATA_DIR=$(mktemp -d /tmp/dsec-docs.XXXXXX)",
				"dsec up --listen 127.0.0.1:7070 2> $DSEC_DATA_DIR/server.log &",
				"until curl -sf http://127.0.0.1:7070/healthz > /dev/null; do sleep 0.1; done",
				"export DSEC_URL=http://127.0.0.1:7070 DSEC_API_KEY=$(cat $DSEC_DATA_DIR/api-key)",
			})
		})
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("boxes are made by root")
	}
}

// block is a fenced part of a document.
type block struct {
	kind string // sh, output, go
	line int
	text string
}

func blocks(t *testing.T, doc string) (list []block) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repo(), doc))
	if err != nil {
		t.Fatal(err)
	}
	var open *block
	for i, line := range strings.Split(string(b), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{kind: fence, line: i + 1}
		case isFence:
			list, open = append(list, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: a block without an end", doc, open.line)
	}
	return list
}

// byCheck are the commands that run this test, or are run beside it: scripts/check.sh.
var byCheck = map[string]string{"make demo\n": "demo", "make check\n": "check", "make build\n": "build"}

func runDocument(t *testing.T, doc string, before []string) {
	list := blocks(t, doc)
	var script strings.Builder
	script.WriteString("set -euo pipefail\n" + cleanUp)
	for _, line := range before {
		script.WriteString(line + "\n")
	}
	for i, b := range list {
		fmt.Fprintf(&script, "echo '::: %d'\n", i)
		switch {
		case b.kind == "sh" && byCheck[b.text] != "":
			if out, err := exec.Command("make", "-C", repo(), "-n", byCheck[b.text]).CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %v\n%s", doc, b.line, err, out)
			}
		case b.kind == "sh": // what is under test is built already
			script.WriteString(strings.ReplaceAll(b.text, "make build\nexport PATH=$PWD/bin:$PATH\n", ""))
		case b.kind == "go":
			fmt.Fprintf(&script, "go run %s\n", goFile(t, b.text))
		}
	}
	got := bash(t, strings.ReplaceAll(script.String(), "127.0.0.1:7070", freeAddress(t)))
	_, dir, _ := strings.Cut(got, "::: data ")
	if dir, _, _ = strings.Cut(dir, "\n"); !strings.HasPrefix(dir, "/") {
		t.Errorf("%s: no data directory is named", doc)
	} else if left := leftovers(dir); len(left) > 0 {
		t.Errorf("%s: left on the machine:\n%s", doc, strings.Join(left, "\n"))
	}
	for i, b := range list {
		if b.kind != "output" {
			continue
		}
		_, out, _ := strings.Cut(got, fmt.Sprintf("::: %d\n", i-1))
		out, _, _ = strings.Cut(out, "::: ")
		for _, want := range strings.Split(strings.TrimSpace(b.text), "\n") {
			rest, ok := after(out, want)
			if !ok {
				t.Errorf("%s:%d: the output lacks %q, or has it earlier:\n%s", doc, b.line, want, out)
				break
			}
			out = rest
		}
	}
}

// after gives what comes behind the first place where text has want and does not go on with the same word: an exit code
// of 1 is not in one of 137.
func after(text, want string) (rest string, ok bool) {
	inWord := func(s string, at int) bool {
		return at >= 0 && at < len(s) && (unicode.IsLetter(rune(s[at])) || unicode.IsDigit(rune(s[at])))
	}
	for {
		if _, text, ok = strings.Cut(text, want); !ok {
			return "", false
		}
		if !inWord(want, len(want)-1) || !inWord(text, 0) {
			return text, true
		}
	}
}

// cleanUp ends what a document leaves when it fails half-way.
const cleanUp = `
finish() {
  code=$?
  echo "::: data $DSEC_DATA_DIR"
  if [ -d "${DSEC_DATA_DIR:-/nonexistent}" ]; then
    [ $code = 0 ] || cat "$DSEC_DATA_DIR"/server.log || true
    dsec stop --all --quiet --url "unix://$DSEC_DATA_DIR/dsec.sock" || true
    kill $(jobs -p) 2>/dev/null || true
    wait
    dsec down > /dev/null || true
    rm -rf "$DSEC_DATA_DIR"
  fi
  exit $code
}
trap finish EXIT
`

// bash runs a text with the binary under test as dsec and gives both streams as one.
func bash(t *testing.T, script string) string {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(binary(), filepath.Join(bin, "dsec")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = repo()
	cmd.Env = append(append(os.Environ(), clean...), "PATH="+bin+":"+os.Getenv("PATH"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

func goFile(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
