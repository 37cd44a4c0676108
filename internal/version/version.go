// Package version says which build this is.
package version

import "runtime/debug"

// Version is set by the linker (make build); "dev" otherwise.
var Version = "dev"

// Revision is the commit that the binary was built from, where the tool chain recorded it.
func Revision() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
