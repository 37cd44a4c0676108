package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// peer runs `true` once in a box of another system, on the same root file
// system as ours, and returns when the box is gone.
type peer struct {
	name    string
	version string
	run     func(ctx context.Context, id string) error
	after   func() // ends what a pass left alive on purpose
	close   func()
	seq     atomic.Int64
}

// PeerNames lists the peers that are known.
func PeerNames() []string { return []string{"bwrap", "crun", "runc", "runsc", "docker", "bare"} }

// newPeer prepares a peer on the root file system at rootfs (a plain
// directory). The error says why it cannot run here.
func newPeer(name, rootfs string) (*peer, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("not installed")
	}
	version := func(args ...string) string {
		out, _ := exec.Command(path, args...).CombinedOutput()
		line, _, _ := strings.Cut(string(out), "\n")
		return strings.TrimSpace(line)
	}
	p := &peer{name: name, version: version("--version"), after: func() {}, close: func() {}}
	switch name {
	case "bwrap":
		p.run = func(ctx context.Context, _ string) error {
			return quiet(exec.CommandContext(ctx, path, "--unshare-all", "--die-with-parent",
				"--ro-bind", rootfs, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "true"))
		}
	case "crun", "runc", "runsc":
		bundle, err := ociBundle(rootfs)
		if err != nil {
			return nil, err
		}
		p.close = func() { os.RemoveAll(bundle) }
		global := []string{"--root", filepath.Join(bundle, "state")}
		if name == "runsc" {
			global = append(global, "--network=none", "--ignore-cgroups")
		}
		p.run = func(ctx context.Context, id string) error {
			return quiet(exec.CommandContext(ctx, path, append(global, "run", "--bundle", bundle, id)...))
		}
	case "docker":
		if out, err := exec.Command(path, "info", "--format", "{{.ServerVersion}}").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("no engine answers: %s", bytes.TrimSpace(out))
		}
		image := "dsec-bench-rootfs"
		imp := exec.Command("sh", "-c", `tar -C "$1" -c . | docker import - "$2"`, "sh", rootfs, image)
		if out, err := imp.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("import of the root file system: %s", bytes.TrimSpace(out))
		}
		p.close = func() { exec.Command(path, "rmi", "-f", image).Run() }
		p.run = func(ctx context.Context, id string) error {
			return quiet(exec.CommandContext(ctx, path, "run", "--rm", "--network", "none", "--name", id, image, "true"))
		}
	default:
		return nil, fmt.Errorf("unknown peer %q: use %s", name, strings.Join(PeerNames(), ", "))
	}
	if err := p.once(context.Background()); err != nil {
		p.close()
		return nil, fmt.Errorf("a first run failed: %w", err)
	}
	return p, nil
}

func (p *peer) once(ctx context.Context) error {
	return p.run(ctx, fmt.Sprintf("dsec-bench-%d-%d", os.Getpid(), p.seq.Add(1)))
}

func quiet(cmd *exec.Cmd) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// ociBundle makes a minimal OCI bundle that runs `true`, read-only, without a
// network, with a memory and a pids limit as our default spec has.
func ociBundle(rootfs string) (string, error) {
	dir, err := os.MkdirTemp("", "dsec-bench-oci-")
	if err != nil {
		return "", err
	}
	ns := []map[string]string{}
	for _, t := range []string{"pid", "network", "ipc", "uts", "mount"} {
		ns = append(ns, map[string]string{"type": t})
	}
	conf := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]int{"uid": 0, "gid": 0}, "args": []string{"/bin/true"}, "cwd": "/",
			"env": []string{"PATH=/usr/bin:/bin"}, "noNewPrivileges": true,
		},
		"root":     map[string]any{"path": rootfs, "readonly": true},
		"hostname": "bench",
		"mounts": []map[string]any{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755", "size=64k"}},
			{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev"}},
		},
		"linux": map[string]any{
			"namespaces": ns,
			"resources":  map[string]any{"memory": map[string]int64{"limit": 512 << 20}, "pids": map[string]int64{"limit": 256}},
		},
	}
	b, err := json.Marshal(conf)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600)
}
