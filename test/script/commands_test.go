package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
)

// cmdUp starts a server on the script's data directory, on a free port ($ADDR). It ends
// with the script: every session is stopped, and nothing may be left.
func cmdUp(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("unsupported: ! up")
	}
	dir := ts.Getenv("DSEC_DATA_DIR")
	ts.Check(os.MkdirAll(dir, 0o700))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	d, err := launch.Start(ctx, launch.Options{Binary: binary(), DataDir: dir, Args: args, Env: clean})
	ts.Check(err)
	ts.Setenv("ADDR", strings.TrimPrefix(d.URL(), "http://"))
	ts.Defer(func() {
		if out, err := exec.Command(binary(), "stop", "--all", "--url", "unix://"+dir+"/dsec.sock").CombinedOutput(); err != nil {
			ts.Fatalf("stop --all: %v\n%s", err, out)
		}
		if err := d.Stop(); err != nil {
			ts.Fatalf("server: %v\n%s", err, d.Log())
		}
		if out, err := exec.Command(binary(), "down", "--data-dir", dir).CombinedOutput(); err != nil {
			ts.Fatalf("down: %v\n%s", err, out)
		}
		if left := leftovers(dir); len(left) > 0 {
			ts.Fatalf("left on the machine:\n%s", strings.Join(left, "\n"))
		}
	})
}

// leftovers of boxes, with every process that a data directory still has.
func leftovers(dir string) []string {
	left := launch.Leftovers(dir, native.CgroupName(dir))
	for pid, name := range launch.Processes(dir) {
		left = append(left, fmt.Sprintf("process %d %s", pid, name))
	}
	return left
}

// cmdExits runs a program and compares its exit code: exits CODE PROGRAM [ARG...].
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// cmdCapture keeps the last standard output in a variable: capture NAME.
func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: capture NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// cmdJSON checks that a stream is one JSON value and, with a path (.a.0.b) and a text,
// what stands there: json stdout|stderr [PATH WANT].
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 && len(args) != 3 {
		ts.Fatalf("usage: json stdout|stderr [PATH WANT]")
	}
	var v any
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		ts.Fatalf("%s is not JSON: %v", args[0], err)
	}
	if dec.More() {
		ts.Fatalf("%s has more than one JSON value", args[0])
	}
	if len(args) == 1 {
		return
	}
	for _, step := range strings.Split(strings.Trim(args[1], "."), ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(x) {
				ts.Fatalf("%s: no element %q of %d", args[1], step, len(x))
			}
			v = x[i]
		default:
			ts.Fatalf("%s: %q is below %v", args[1], step, v)
		}
	}
	if got := strings.TrimSpace(fmt.Sprint(v)); got != args[2] {
		ts.Fatalf("%s is %q, want %q", args[1], got, args[2])
	}
}

// cmdLeft checks that boxes of the script's data directory left nothing: no process, cgroup,
// mount, loop device, directory.
func cmdLeft(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.Getenv("DSEC_DATA_DIR")
	left := leftovers(dir)
	if entries, err := os.ReadDir(dir + "/local"); err == nil {
		for _, e := range entries {
			left = append(left, leftovers(dir+"/local/"+e.Name())...)
			left = append(left, "directory local/"+e.Name())
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && bytes.Contains(mounts, []byte(dir)) {
		left = append(left, "a mount below "+dir)
	}
	if neg || len(args) > 0 {
		ts.Fatalf("usage: left")
	}
	if len(left) > 0 {
		ts.Fatalf("left on the machine:\n%s", strings.Join(left, "\n"))
	}
}

// cmdEventually repeats a program until it succeeds, for ten seconds at most.
func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: eventually PROGRAM [ARG...]")
	}
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = ts.Exec(args[0], args[1:]...); err == nil {
			return
		}
	}
	ts.Fatalf("%s: %v", strings.Join(args, " "), err)
}
