package e2b

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// sdk is one SDK of one age: how its cases are run, and how its public calls are listed.
type sdk struct {
	name, title string
	cases, list []string // argv
	env         []string
}

func all() []sdk {
	var out []sdk
	for _, age := range []string{"new", "old"} {
		js := cache("js-"+age, "node_modules")
		out = append(out, sdk{
			name: "js-" + age, title: "JavaScript " + npm[age][0][len("e2b@"):],
			cases: []string{"node", "js/run.mjs"}, env: []string{"CONF_SDK=" + cache("js-"+age)},
			list: []string{"node", "js/enumerate.mjs", cache("typescript", "node_modules"), js + "/e2b", js + "/@e2b/code-interpreter"},
		})
		for _, flavour := range []string{"sync", "async"} {
			out = append(out, sdk{
				name: "py-" + flavour + "-" + age, title: "Python " + pypi[age][0][len("e2b=="):] + " " + flavour,
				cases: []string{python(age), "py/run.py"}, env: []string{"CONF_FLAVOUR=" + flavour},
				list: []string{python(age), "py/run.py", "--list"},
			})
		}
	}
	return slices.DeleteFunc(out, func(s sdk) bool { return !strings.Contains(s.name, *sdks) })
}

// result is what a runner says about a case.
type result struct {
	Case, Outcome, Detail string
	Calls                 []string
	Refused               []struct{ Call, Reason string }
	MS                    int
}

// atOnce is how many SDKs run at the same time: their cases wait more than they compute.
const atOnce = 4

// TestConformance runs all cases with all SDKs, each in a process of its own.
func TestConformance(t *testing.T) {
	outcomes := map[string]*outcome{}
	var wg sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for _, s := range all() {
		o := &outcome{sdk: s, passed: map[string]bool{}, refused: map[string]string{}}
		outcomes[s.name] = o
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			o.run(t.Context())
		})
	}
	wg.Wait()
	for _, s := range all() {
		t.Run(s.name, outcomes[s.name].judge)
	}
	if *only != "" {
		return
	}
	for _, o := range outcomes {
		o.covered(t)
	}
	if *sdks != "" {
		return
	}
	if !t.Failed() {
		checkMatrix(t, outcomes)
	}
}

// outcome is what became of the calls of one SDK.
type outcome struct {
	sdk     sdk
	public  []string
	results []result
	failure error
	passed  map[string]bool
	refused map[string]string
}

// run lists the SDK's calls and runs its cases.
func (o *outcome) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 12*time.Minute)
	defer cancel()
	list := exec.CommandContext(ctx, o.sdk.list[0], o.sdk.list[1:]...)
	list.Env = place.env(o.sdk.env...)
	out, err := list.Output()
	if err != nil {
		o.failure = fmt.Errorf("%s: %w", list, err)
		return
	}
	o.public = strings.Fields(string(out))

	o.results, o.failure = o.cases(ctx)
}

// cases runs those whose names contain what -only says, each once.
func (o *outcome) cases(ctx context.Context) (results []result, failure error) {
	args := o.sdk.cases[1:]
	if *only != "" {
		args = append(slices.Clone(args), *only)
	}
	cmd := exec.CommandContext(ctx, o.sdk.cases[0], args...)
	cmd.Env = place.env(append(o.sdk.env, "CONF_RUN="+o.sdk.name)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		failure = fmt.Errorf("%s: %w\n%s", cmd, err, tail(stderr.String(), 4_000))
	}
	lines := bufio.NewScanner(&stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r result
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Case != "" { // else it is what an SDK itself prints
			results = append(results, r)
		}
	}
	return results, failure
}

func (o *outcome) judge(t *testing.T) {
	for _, r := range o.results {
		t.Run(r.Case, func(t *testing.T) { o.take(t, r) })
	}
	if o.failure != nil && !t.Failed() || len(o.results) == 0 {
		t.Errorf("after %d cases: %v", len(o.results), o.failure)
	}
}

func (o *outcome) take(t *testing.T, r result) {
	t.Logf("%d ms", r.MS)
	if r.Outcome != "pass" {
		t.Error(r.Detail)
		return
	}
	for _, c := range r.Calls {
		o.passed[canonical(c)] = true
	}
	for _, c := range r.Refused {
		o.refused[canonical(c.Call)] = c.Reason
	}
}

// covered wants every public call and option in a case that passed, or in a refusal.
func (o *outcome) covered(t *testing.T) {
	var none []string
	for _, c := range o.public {
		if _, refused := o.refused[canonical(c)]; !refused && !o.passed[canonical(c)] {
			none = append(none, c)
		}
	}
	if len(none) > 0 {
		t.Errorf("%s: %d of %d public calls have no case: %s", o.sdk.name, len(none), len(o.public), strings.Join(none, " "))
	}
}

// canonical gives a call one name in all languages.
func canonical(call string) string {
	return strings.ToLower(strings.TrimSuffix(call, "Ms"))
}
