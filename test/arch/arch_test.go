// Package arch holds the architecture as tests: which package may import which.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/dsec-platform/dsec"

type pkg struct {
	ImportPath string
	Doc        string
	Imports    []string
	Deps       []string
	Name       string
	GoFiles    []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,Deps,Name,GoFiles", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// forbidden says which direct imports a package (and those below it) must not have, and why.
var forbidden = []struct {
	from string   // import path below the module, "/..." for the tree
	not  []string // import paths; a name without a dot or slash before it is the standard library's
	why  string
}{
	{"internal/session", []string{"net", "os", "io/fs", "net/http", "database/sql", "log/slog"}, "the state machine is pure: it is tested by properties"},
	{"internal/sched", []string{"net", "os", "io/fs", "net/http", "database/sql", "log/slog"}, "the scheduler is pure: it is tested with virtual time"},
	{"internal/errdefs", []string{module}, "the error vocabulary is below everything"},
	{"internal/ctxread", []string{module}, "it is below everything"},
	{"internal/secretfile", []string{module}, "it is below everything"},
	{"internal/keyed", []string{module + "/internal/node", module + "/internal/control", module + "/internal/store", module + "/internal/api", module + "/internal/template", "net/http"}, "a key knows nothing of what it is over"},
	{"internal/runtime", []string{module + "/internal/node", module + "/internal/control", module + "/internal/store", module + "/internal/api", module + "/internal/session"}, "a runtime knows nothing of sessions, SQL or HTTP"},
	{"internal/runtime/...", []string{module + "/internal/node", module + "/internal/control", module + "/internal/store", module + "/internal/api", module + "/internal/session", "net/http"}, "a runtime knows nothing of sessions, SQL or HTTP"},
	{"internal/node/...", []string{module + "/internal/control", module + "/internal/store", module + "/internal/api"}, "the data plane does not know the control plane"},
	{"internal/store/...", []string{module + "/internal/node", module + "/internal/control", module + "/internal/api"}, "SQL is below the control plane"},
	{"internal/control", []string{module + "/internal/api", module + "/internal/cli", module + "/internal/runtime/native", "net/http"}, "the control plane does not know its wire nor how a box is made"},
	{"internal/e2b/...", []string{module + "/internal/cli", module + "/internal/server", module + "/internal/store", module + "/internal/runtime/native"}, "the facade is a gateway: it knows control, guest and template, not how they are kept or made"},
	{"internal/api", []string{module + "/internal/e2b"}, "the gateway serves a facade without knowing which"},
	{"internal/build", []string{module + "/internal/api", module + "/internal/e2b", module + "/internal/node", module + "/internal/control", module + "/internal/store", "net/http"}, "builds know the template store and no wire"},
	{"internal/template/...", []string{module + "/internal/api", module + "/internal/node", module + "/internal/control", module + "/internal/build"}, "templates are below the node and its builds"},
	{"internal/spec", []string{module + "/internal/node", module + "/internal/control", module + "/internal/api", "net/http"}, "a spec is plain data"},
	{"internal/mcp", []string{module + "/internal/node", module + "/internal/control", module + "/internal/store", module + "/internal/api", module + "/internal/runtime", module + "/internal/server", module + "/internal/cli"}, "MCP is served by a client of the wire"},
	{"internal/egress/...", []string{module + "/internal/node", module + "/internal/control", module + "/internal/store", module + "/internal/api", module + "/internal/session", module + "/internal/runtime"}, "egress serves every runtime and knows none of them"},
	{"internal/site", []string{module + "/internal/node", module + "/internal/control", module + "/internal/store", module + "/internal/api", module + "/internal/session", "net/http"}, "what the operator says is below who asks"},
	{"internal/egress/policy", []string{"net", "os", "io/fs", "net/http", "time", "log/slog"}, "a policy is pure: what it says depends on nothing but its text"},
	{"internal/egress/hello", []string{"net", "os", "time"}, "a parser of hostile bytes does no I/O"},
	{"internal/egress/dns", []string{"net", "os"}, "a parser of hostile bytes does no I/O"},
	{"sdk/go/...", []string{module + "/internal"}, "the SDK is public: it lives on the wire only"},
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		rel := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, rule := range forbidden {
			tree, isTree := strings.CutSuffix(rule.from, "/...")
			if rel != rule.from && (!isTree || (rel != tree && !strings.HasPrefix(rel, tree+"/"))) {
				continue
			}
			for _, imp := range p.Imports {
				for _, bad := range rule.not {
					if imp == bad || (strings.HasPrefix(bad, module) && strings.HasPrefix(imp, bad+"/")) {
						t.Errorf("%s imports %s: %s", rel, imp, rule.why)
					}
				}
			}
		}
	}
}

// The guest runs as PID 1 of every box: what it links is paid by each of them,
// in start-up time and in resident memory.
func TestGuestLinksOnlyStdlibAndSys(t *testing.T) {
	heavy := []string{"net/http", "encoding/json", "os/user", "regexp", "text/template", "crypto/tls"}
	for _, p := range list(t) {
		if p.ImportPath != module+"/cmd/dsec-guest" && p.ImportPath != module+"/cmd/dsec-spawner" {
			continue
		}
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			external := strings.Contains(first, ".")
			if external && !strings.HasPrefix(dep, "golang.org/x/sys/") && !strings.HasPrefix(dep, module+"/") {
				t.Errorf("%s links %s", p.ImportPath, dep)
			}
			for _, h := range heavy {
				if dep == h {
					t.Errorf("%s links %s: its package initialisation is on the hot path", p.ImportPath, dep)
				}
			}
		}
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for _, p := range list(t) {
		if p.Name == "main" || len(p.GoFiles) == 0 || strings.Contains(p.ImportPath, "/gen/") || strings.HasSuffix(p.ImportPath, "/store/db") {
			continue
		}
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}
