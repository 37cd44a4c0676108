package spec

import (
	"path"
	"strings"
)

// sockets of container engines: whoever can talk to one is root on the host.
var engineSockets = []string{"docker.sock", "containerd.sock", "crio.sock", "podman.sock", "buildkitd.sock", "cri-dockerd.sock"}

// hostDirs must never be shown in a box, with what is in them.
var hostDirs = []struct{ dir, why string }{
	{"/proc", "shows the host's processes and kernel settings"},
	{"/sys", "shows the host's devices and cgroups"},
	{"/dev", "holds the host's devices"},
	{"/run", "holds the sockets of the host's services, container engines among them"},
	{"/var/run", "holds the sockets of the host's services, container engines among them"},
	{"/etc", "holds the host's users, keys and secrets"},
	{"/root", "is the home of the host's root"},
	{"/boot", "holds the host's kernel"},
	{"/var/lib/docker", "holds every container's files"},
	{"/var/lib/containerd", "holds every container's files"},
	{"/var/lib/containers", "holds every container's files"},
	{"/var/lib/kubelet", "holds every pod's secrets"},
	{"/var/lib/dsec", "is the platform's own data directory"},
	{"/var/log", "holds the host's logs"},
	{"/var/spool/cron", "holds jobs that the host runs"},
}

// wholeTrees are refused themselves, but what is below them may be data.
var wholeTrees = map[string]string{
	"/":        "is the whole host",
	"/var":     "holds the host's services' data and sockets",
	"/var/lib": "holds the host's services' data",
	"/usr":     "is the host's software, which a template provides",
	"/home":    "holds the host's users' files and keys",
	"/tmp":     "is shared by everything on the host: that is how one task reads another's files",
	"/var/tmp": "is shared by everything on the host: that is how one task reads another's files",
	"/mnt":     "is where the host mounts its disks; name the one directory that is needed",
	"/srv":     "is all that the host serves; name the one directory that is needed",
	"/opt":     "is all of the host's optional software; name the one directory that is needed",
}

// escapes says why a host path must not reach a box, or "". more are further
// directories of the platform, such as its data directory.
func escapes(source string, more []string) string {
	p := path.Clean("/" + source)
	base := path.Base(p)
	for _, s := range engineSockets {
		if base == s {
			return "is a container engine's socket: a box that can talk to it is root on the host"
		}
	}
	if strings.HasSuffix(base, ".sock") {
		return "is a socket of a host service, not data"
	}
	if why, ok := wholeTrees[p]; ok {
		return why
	}
	if path.Dir(p) == "/home" {
		return "is a user's whole home, keys and history included"
	}
	for _, part := range strings.Split(p, "/") {
		switch part {
		case ".ssh", ".aws", ".gnupg", ".kube", ".docker", ".config":
			return "holds a user's keys"
		}
	}
	for _, h := range hostDirs {
		if below(p, h.dir) {
			return h.why
		}
	}
	for _, d := range more {
		if d != "" && (below(p, d) || below(d, p)) {
			return "is or holds the platform's own data directory " + d
		}
	}
	return ""
}
