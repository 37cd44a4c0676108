// Package e2b runs E2B's own, unmodified SDKs against a running `dsec up`: every public call that
// they declare, in JavaScript and Python, newest and a year old. Each call passes, or is refused
// for the reason that docs/e2b.md gives; anything else fails. The outcomes are docs/e2b-matrix.md.
//
// It needs root, bin/dsec (make build), node, npm and python3, and once the network, for the SDKs;
// it says in one line what is missing. `go test ./test/e2b -update` writes the matrix.
package e2b

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

var (
	update = flag.Bool("update", false, "write docs/e2b-matrix.md")
	only   = flag.String("only", "", "run only the cases whose names contain this; nothing is said about coverage then")
	sdks   = flag.String("sdks", "", "run only the SDKs whose names contain this")
)

// place is where the tests run; nil when they cannot, and then skip says why.
var (
	place *world
	skip  string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if skip = missing(); skip != "" {
		fmt.Println("SKIP: " + skip)
		return 0
	}
	w, err := open(context.Background())
	if err != nil {
		log.Print(err)
		return 1
	}
	place = w
	code := m.Run()
	if code != 0 {
		log.Printf("the daemon's log ends:\n%s", tail(w.Log(), 8_000))
	}
	if left := w.close(); len(left) > 0 {
		log.Printf("left on the machine:\n%s", strings.Join(left, "\n"))
		code = 1
	}
	return code
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// missing tells what the tests need and is not here.
func missing() string {
	if os.Geteuid() != 0 {
		return "conformance tests make real boxes and need root"
	}
	for _, tool := range []string{"node", "npm", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "conformance tests need " + tool
		}
	}
	// What the newest packages say they need.
	if exec.Command("node", "-e", `const [a, b] = process.versions.node.split("."); process.exit(a > 20 || a == 20 && b >= 18 ? 0 : 1)`).Run() != nil {
		return "conformance tests need Node 20.18 or newer"
	}
	if offline() {
		return "conformance tests install E2B's SDKs, and no package registry can be reached"
	}
	return ""
}

// binary is the dsec under test.
func binary() string {
	if b := os.Getenv("DSEC_TEST_BINARY"); b != "" {
		return b
	}
	return root("bin/dsec")
}

func root(path string) string {
	abs, _ := filepath.Abs(filepath.Join("../..", path))
	return abs
}

// world is a daemon with the templates that the cases use, and the deployment around it.
type world struct {
	*launch.Daemon
	c      *dsec.Client
	key    string
	around *surroundings
}

// Templates of the cases. The image interpreter's SDKs ask for by default has a fixed name.
const (
	template    = "conformance"
	interpreter = "code-interpreter-v1"
)

func open(ctx context.Context) (*world, error) {
	if err := launch.Current(binary()); err != nil {
		return nil, err
	}
	if err := install(ctx); err != nil {
		return nil, err
	}
	rootfs, err := output(root("scripts/code-interpreter-rootfs.sh"))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "dsec-conformance-")
	if err != nil {
		return nil, err
	}
	around, err := surround()
	if err != nil {
		return nil, err
	}
	d, err := launch.Start(ctx, launch.Options{Binary: binary(), DataDir: dir, Args: []string{"--e2b-domain", around.domain(), "--config", around.config}})
	if err != nil {
		return nil, err
	}
	w := &world{Daemon: d, around: around}
	around.pointAt(d.URL())
	if w.key, err = d.Key(); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	if w.c, err = dsec.New(dsec.Options{URL: d.URL(), APIKey: w.key}); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	if err := w.templates(rootfs); err != nil {
		return nil, errors.Join(err, errors.New(strings.Join(w.close(), "\n")))
	}
	return w, nil
}

// templates makes the template of the cases, under which a bare repository can be cloned without a
// network, and by the SDK itself that of the code interpreter.
func (w *world) templates(rootfs string) error {
	const repository = `git init -q -b main /srv/example && cd /srv/example && echo example >README && git add README &&
		git -c user.name=x -c user.email=x@example.com commit -q -m x && git clone -q --bare /srv/example /srv/example.git && rm -rf /srv/example`
	if _, err := output(binary(), "--quiet", "--url", "unix://"+w.DataDir()+"/dsec.sock", "template", "import", "--name", template, "--init", repository, "tar:"+rootfs); err != nil {
		return err
	}
	cmd := exec.Command(python("new"), root("examples/code-interpreter/build.py"), "--base", template, interpreter)
	cmd.Env = w.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return w.around.publish()
}

// env is what a user of the SDKs sets, and what the cases must know of their surroundings.
func (w *world) env(more ...string) []string {
	return append(append(os.Environ(),
		"E2B_API_URL="+w.URL(), "E2B_SANDBOX_URL="+w.URL(), "E2B_API_KEY="+w.key, "E2B_DOMAIN="+w.around.domain(),
		"CONF_WILDCARD="+wildcard, "CONF_PROXY="+w.around.proxy.URL, "CONF_TEMPLATE="+template,
		"CONF_IMAGE="+w.around.image(), "CONF_PRIVATE_IMAGE="+w.around.privateImage(),
		"NODE_EXTRA_CA_CERTS="+w.around.ca, "SSL_CERT_FILE="+w.around.ca, "TMPDIR="+w.around.dir, "PYTHONDONTWRITEBYTECODE=1"), more...)
}

// close stops everything and tells what is left on the machine.
func (w *world) close() []string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	defer w.around.close()
	var left []string
	if _, err := w.c.Stop(ctx, &dsec.Selector{All: true}, "end of the tests"); err != nil {
		left = append(left, "stop: "+err.Error())
	}
	if st, err := w.c.Nodes.GetStats(ctx, &dsecv1.GetStatsRequest{}); err == nil && st.GetBoxes() > 0 {
		left = append(left, fmt.Sprintf("sessions have ended, boxes have not: %v", st))
	}
	w.c.Close()
	if err := w.Stop(); err != nil {
		left = append(left, "daemon: "+err.Error())
	}
	if _, err := output(binary(), "down", "--data-dir", w.DataDir()); err != nil {
		left = append(left, err.Error())
	}
	left = append(left, launch.Remains(w.DataDir(), native.CgroupName(w.DataDir()))...)
	if err := os.RemoveAll(w.DataDir()); err != nil {
		left = append(left, err.Error())
	}
	return left
}

// output runs a program and gives what it prints, without the newline at its end.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", cmd, err, out, tail(stderr.String(), 4_000))
	}
	return strings.TrimSpace(string(out)), nil
}
