package errdefs_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func TestPublicNamesNoFilesOfTheServer(t *testing.T) {
	_, missing := os.Open("/var/lib/dsec/builds/x.json")
	linked := os.Link("/var/lib/dsec/a", "/var/lib/dsec/b")
	for what, err := range map[string]error{
		"kept":      errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "build x", "its record cannot be kept: %w", missing),
		"object":    errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "record /var/lib/dsec/builds/x.json", "cannot be read"),
		"unforseen": fmt.Errorf("something: %w", missing),
		"user":      errdefs.Userf(errdefs.InvalidArgument, "image i", "look", "cannot be used: %w", fmt.Errorf("layer: %w", missing)),
		"joined":    errdefs.Userf(errdefs.InvalidArgument, "image i", "look", "cannot be used: %w", errors.Join(linked, missing)),
		"text":      errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "mount", "mount(\"/var/lib/dsec/boxes/1\", lower=/var/lib/dsec/l) failed"),
	} {
		e := errdefs.Public(err)
		if s := e.Error(); strings.Contains(s, "/var/lib") || !strings.Contains(s, "a file of the server") {
			t.Errorf("%s: %s", what, s)
		}
		if e.Reason != errdefs.From(err).Reason {
			t.Errorf("%s: %+v", what, e)
		}
	}
	for _, kept := range []error{
		errdefs.Userf(errdefs.NotFound, "file /home/user/x", "look", "there is no /home/user/x"),
		errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "image registry.example/a/b", "cannot be fetched: Get \"https://registry.example/v2/a\": EOF"),
		errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "server", "it starts / stops and/or waits"),
	} {
		if s := errdefs.Public(kept).Error(); s != kept.Error() {
			t.Errorf("%s became %s", kept, s)
		}
	}
	if errdefs.Public(nil) != nil {
		t.Error("an error of nothing")
	}
}
