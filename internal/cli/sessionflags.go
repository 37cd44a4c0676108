package cli

import (
	"bufio"
	"bytes"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/dsec-platform/dsec/internal/spec"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// sessionFlags say what a session is made of; create and run share them.
type sessionFlags struct {
	template  string
	specFile  string
	over      spec.Sandbox // from single flags; laid over the file
	rootfs    string
	env       []string
	envFile   string
	secrets   []string
	labels    []string
	job       string
	code      string
	codeDir   string
	priority  string
	noPool    bool
	writables []string
	given     func(flag string) bool
}

func (f *sessionFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.given = fl.Changed
	fl.StringVarP(&f.template, "template", "t", "", "template, \"name\" or \"name@version\", or an image with its registry, such as docker.io/library/python:3.12 (default base)")
	fl.StringVarP(&f.specFile, "spec", "f", "", "file with a sandbox_spec (- is standard input)")
	fl.Var(&f.over.MemLimit, "mem", "memory limit, such as 512Mi")
	fl.Float64Var(&f.over.CPULimit, "cpu", 0, "CPU limit in cores")
	fl.IntVar(&f.over.PidLimit, "pids", 0, "most processes")
	fl.StringVarP(&f.over.User, "user", "u", "", "default user of commands: user, root or a name of the template")
	fl.StringVar(&f.rootfs, "rootfs", "", "readonly or writable")
	fl.StringSliceVar(&f.writables, "writable", nil, "writable directory (may be given again)")
	fl.Var(&f.over.FS.WritableSizeLimit, "disk", "limit of all persistent writes, such as 1Gi")
	fl.StringVar(&f.over.Seccomp.Profile, "seccomp", "", "profile: default, network, build or debug")
	fl.IntVar(&f.over.Session.MaxIdleSeconds, "max-idle", 0, "seconds without an operation until it is reclaimed")
	fl.IntVar(&f.over.Session.MaxRuntimeSeconds, "max-runtime", 0, "seconds of running until its processes are ended")
	fl.IntVar(&f.over.Session.MaxSuspendedSeconds, "max-suspended", 0, "seconds of one suspension until it is reclaimed")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "environment variable, NAME=VALUE or NAME to pass on this process's (may be given again)")
	fl.StringVar(&f.envFile, "env-file", "", "file of NAME=VALUE lines")
	fl.StringArrayVar(&f.secrets, "secret", nil, "like --env, for values that no log, record or inspect may show; prefer NAME alone")
	fl.StringArrayVarP(&f.labels, "label", "l", nil, "label, KEY=VALUE (may be given again)")
	fl.StringVar(&f.job, "job", "", "job that the session belongs to")
	fl.StringVar(&f.code, "code", "", "directory or tar (plain, gzip or zstd) put into the box before it runs")
	fl.StringVar(&f.codeDir, "code-dir", "", "where the code goes (default /workspace)")
	fl.StringVar(&f.priority, "priority", "", "priority level of the scheduler's configuration")
	fl.BoolVar(&f.noPool, "no-pool", false, "never take a box of the warm pool")
}

// overrides gives the spec of the file with the flags laid over it, as it is
// said: nothing is filled in. Findings of the linter are shown.
func (f *sessionFlags) overrides(e *Env) (spec.Sandbox, error) {
	var base spec.Sandbox
	if err := f.noZeros(); err != nil {
		return base, err
	}
	if f.specFile != "" {
		doc, err := e.readSpec(f.specFile)
		if err != nil {
			return base, err
		}
		if doc.Sandbox == nil {
			return base, usagef("%s: holds no sandbox_spec", f.specFile)
		}
		base = *doc.Sandbox
	}
	switch f.rootfs {
	case "":
	case "readonly", "writable":
		ro := f.rootfs == "readonly"
		f.over.FS.RootFS.ReadOnly = &ro
	default:
		return base, usagef("--rootfs %s: want readonly or writable", f.rootfs)
	}
	f.over.FS.WritableDirs = f.writables
	s := spec.Merge(base, f.over)
	return s, spec.Validate(&s)
}

// noZeros refuses limits of nothing, which a spec takes for unsaid.
func (f *sessionFlags) noZeros() error {
	o := &f.over
	for flag, zero := range map[string]bool{
		"cpu": o.CPULimit == 0, "mem": o.MemLimit == 0, "pids": o.PidLimit == 0, "disk": o.FS.WritableSizeLimit == 0,
		"max-idle": o.Session.MaxIdleSeconds == 0, "max-runtime": o.Session.MaxRuntimeSeconds == 0, "max-suspended": o.Session.MaxSuspendedSeconds == 0,
	} {
		if zero && f.given(flag) {
			return usagef("--%s 0: want more than 0, or leave it out for the default", flag)
		}
	}
	return nil
}

// options gives what the API's create takes.
func (f *sessionFlags) options(e *Env) (dsec.CreateOptions, error) {
	o := dsec.CreateOptions{Template: f.template, Job: f.job, CodeDir: f.codeDir, Priority: f.priority, NoPool: f.noPool}
	s, err := f.overrides(e)
	if err != nil {
		return o, err
	}
	if o.SpecYAML, err = specText(s); err != nil {
		return o, err
	}
	if o.Env, err = f.environment(); err != nil {
		return o, err
	}
	if o.Secrets, err = pairs("--secret", f.secrets, os.LookupEnv); err != nil {
		return o, err
	}
	if o.Labels, err = pairs("--label", f.labels, nil); err != nil {
		return o, err
	}
	if f.code != "" {
		o.Code, err = readCode(f.code)
	}
	return o, err
}

// specText writes a spec as YAML; "" when it says nothing.
func specText(s spec.Sandbox) (string, error) {
	b, err := yaml.Marshal(s)
	if err != nil || strings.TrimSpace(string(b)) == "{}" {
		return "", err
	}
	b, err = yaml.Marshal(map[string]spec.Sandbox{"sandbox_spec": s})
	return string(b), err
}

func (f *sessionFlags) environment() (map[string]string, error) {
	var all []string
	if f.envFile != "" {
		data, err := os.ReadFile(f.envFile)
		if err != nil {
			return nil, err
		}
		sc := bufio.NewScanner(bytes.NewReader(data))
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			if line := strings.TrimSpace(sc.Text()); line != "" && line[0] != '#' {
				all = append(all, line)
			}
		}
		if err := sc.Err(); err != nil {
			return nil, err
		}
	}
	return pairs("--env", append(all, f.env...), os.LookupEnv)
}

// pairs reads NAME=VALUE items; a bare NAME is looked up, where that is meant.
func pairs(flag string, items []string, lookup func(string) (string, bool)) (map[string]string, error) {
	if len(items) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(items))
	for _, it := range items {
		k, v, ok := strings.Cut(it, "=")
		if !ok && lookup != nil {
			if v, ok = lookup(k); !ok {
				return nil, usagef("%s %s: is not set in this environment (write %s=VALUE)", flag, k, k)
			}
		}
		if !ok || k == "" {
			return nil, usagef("%s %q: want NAME=VALUE", flag, it)
		}
		m[k] = v
	}
	return m, nil
}
