package e2b

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The SDKs under test, pinned: the newest when this was written, and those of December 2025.
var (
	npm = map[string][]string{
		"new": {"e2b@2.51.0", "@e2b/code-interpreter@2.8.0"},
		"old": {"e2b@2.8.4", "@e2b/code-interpreter@2.3.3"},
	}
	pypi = map[string][]string{
		"new": {"e2b==2.63.0", "e2b-code-interpreter==2.11.5"},
		"old": {"e2b==2.8.1", "e2b-code-interpreter==2.4.1"},
	}
	// What reads the type declarations of the JavaScript SDKs.
	compiler = []string{"typescript@5.9.3", "@types/node@20.19.0"}
)

func cache(parts ...string) string {
	return root(filepath.Join(append([]string{".cache/e2b"}, parts...)...))
}

func python(age string) string { return cache("py-"+age, "bin/python") }

// install puts the SDKs into .cache/e2b, each version in a directory of its own, unless they are there.
func install(ctx context.Context) error {
	var errs []error
	for age, packages := range npm {
		errs = append(errs, npmInstall(ctx, "js-"+age, packages))
	}
	errs = append(errs, npmInstall(ctx, "typescript", compiler))
	for age, packages := range pypi {
		errs = append(errs, pipInstall(ctx, "py-"+age, packages))
	}
	return errors.Join(errs...)
}

func npmInstall(ctx context.Context, name string, packages []string) error {
	return once(name, packages, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private": true}`), 0o644); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "npm", append([]string{"install", "--no-audit", "--no-fund", "--save-exact"}, packages...)...)
		cmd.Dir = dir
		return command(cmd)
	})
}

func pipInstall(ctx context.Context, name string, packages []string) error {
	return once(name, packages, func(dir string) error {
		if err := command(exec.CommandContext(ctx, "python3", "-m", "venv", dir)); err != nil {
			return err
		}
		return command(exec.CommandContext(ctx, filepath.Join(dir, "bin/pip"), append([]string{"install", "--quiet", "--disable-pip-version-check"}, packages...)...))
	})
}

// offline tells that a package has to be fetched and cannot be.
func offline() bool {
	for name, packages := range map[string][]string{"js-new": npm["new"], "js-old": npm["old"], "typescript": compiler, "py-new": pypi["new"], "py-old": pypi["old"]} {
		if !installed(cache(name), packages) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return exec.CommandContext(ctx, "npm", "view", npm["new"][0], "version").Run() != nil
		}
	}
	return false
}

func installed(dir string, packages []string) bool {
	got, err := os.ReadFile(filepath.Join(dir, "installed"))
	return err == nil && string(got) == strings.Join(packages, "\n")
}

// once fills a directory of the cache. A file in it says with what, so that another pin fills it anew.
func once(name string, packages []string, fill func(dir string) error) error {
	dir := cache(name)
	if installed(dir, packages) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	if err := fill(dir); err != nil {
		return fmt.Errorf("installing %s: %w", strings.Join(packages, " "), err)
	}
	return os.WriteFile(filepath.Join(dir, "installed"), []byte(strings.Join(packages, "\n")), 0o644)
}

func command(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}
