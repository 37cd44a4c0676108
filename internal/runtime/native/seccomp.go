package native

import (
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/seccomp"
)

// compileSeccomp gives the filter of a claim.
func compileSeccomp(c *runtime.Claim) ([]byte, error) {
	profile := c.Seccomp.Profile
	if profile == "" {
		profile = seccomp.Default
	}
	return seccomp.Compile(profile, c.Seccomp.AllowExtra, seccomp.Options{})
}
