package e2b

import (
	"math"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/spec"
)

// clientID is a field that means nothing any more and must be there.
const clientID = "dsec"

// wireSandbox is the answer to a create and a connect.
type wireSandbox struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
	EgressPolicy       string  `json:"egressPolicy"` // what "internet access" means here
}

func (f *Facade) wireSandbox(s *control.Session) wireSandbox {
	out := wireSandbox{
		SandboxID: s.ID, TemplateID: s.Labels[labelTemplate], Alias: s.Labels[labelAlias], ClientID: clientID,
		EnvdVersion: EnvdVersion, EnvdAccessToken: f.cfg.Sandboxes.tokens.Envd(s.ID), Domain: f.domain(), EgressPolicy: policyOf(s),
	}
	if s.Labels[labelPublic] == "" {
		token := f.cfg.Sandboxes.tokens.Traffic(s.ID)
		out.TrafficAccessToken = &token
	}
	return out
}

func (f *Facade) domain() *string {
	if f.cfg.Domain == "" {
		return nil
	}
	return &f.cfg.Domain
}

// listedSandbox is a sandbox in a list.
type listedSandbox struct {
	SandboxID    string            `json:"sandboxID"`
	TemplateID   string            `json:"templateID"`
	Alias        string            `json:"alias,omitempty"`
	ClientID     string            `json:"clientID"`
	EnvdVersion  string            `json:"envdVersion"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	State        string            `json:"state"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int64             `json:"memoryMB"`
	DiskSizeMB   int64             `json:"diskSizeMB"`
	Metadata     map[string]string `json:"metadata"`
	VolumeMounts []struct{}        `json:"volumeMounts"` // there are none
}

func listed(s *control.Session) listedSandbox {
	return listedSandbox{
		SandboxID: s.ID, TemplateID: s.Labels[labelTemplate], Alias: s.Labels[labelAlias], ClientID: clientID, EnvdVersion: EnvdVersion,
		StartedAt: started(s), EndAt: s.Deadline.UTC().Truncate(time.Microsecond), State: stateOf(s),
		CPUCount: cpus(&s.Spec), MemoryMB: int64(s.Spec.MemLimit / spec.MiB), DiskSizeMB: int64(s.Spec.FS.WritableSizeLimit / spec.MiB),
		Metadata: metadata(s.Labels), VolumeMounts: []struct{}{},
	}
}

// sandboxDetail is a sandbox by itself.
type sandboxDetail struct {
	listedSandbox
	EnvdAccessToken     string        `json:"envdAccessToken"`
	Domain              *string       `json:"domain"`
	AllowInternetAccess bool          `json:"allowInternetAccess"` // what is so, not what was asked for
	EgressPolicy        string        `json:"egressPolicy"`
	Network             wireNetwork   `json:"network"`
	Lifecycle           wireLifecycle `json:"lifecycle"`
}

type wireNetwork struct {
	AllowOut           []string `json:"allowOut"`
	DenyOut            []string `json:"denyOut"`
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
}

type wireLifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

func (f *Facade) detail(s *control.Session) sandboxDetail {
	n := wireNetwork{AllowOut: append([]string{}, s.Spec.Network.AllowedDomains...), DenyOut: []string{}, AllowPublicTraffic: s.Labels[labelPublic] != ""}
	n.AllowOut = append(n.AllowOut, s.Spec.Network.AllowedIPs...)
	policy := policyOf(s)
	if policy != spec.EgressOpen {
		n.DenyOut = []string{"0.0.0.0/0"}
	}
	return sandboxDetail{
		listedSandbox: listed(s), EnvdAccessToken: f.cfg.Sandboxes.tokens.Envd(s.ID), Domain: f.domain(),
		AllowInternetAccess: policy != spec.EgressDeny, EgressPolicy: policy, Network: n,
		Lifecycle: wireLifecycle{OnTimeout: onTimeout(s), AutoResume: resumesByItself(s)},
	}
}

func onTimeout(s *control.Session) string {
	if s.AtDeadline == "suspend" {
		return "pause"
	}
	return "kill"
}

func policyOf(s *control.Session) string {
	if s.Spec.Network.EgressPolicy == "" {
		return spec.EgressDeny
	}
	return s.Spec.Network.EgressPolicy
}

func stateOf(s *control.Session) string {
	if paused(s) {
		return statePaused
	}
	return stateRunning
}

// paused tells whether the sandbox is paused, or about to be.
func paused(s *control.Session) bool { return s.Desired == "suspended" }

func started(s *control.Session) time.Time {
	if s.Started.IsZero() {
		return s.Created.UTC().Truncate(time.Microsecond)
	}
	return s.Started.UTC().Truncate(time.Microsecond)
}

func cpus(s *spec.Sandbox) int { return max(int(math.Ceil(s.CPULimit)), 1) }
