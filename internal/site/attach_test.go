package site

import (
	"errors"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func TestAttach(t *testing.T) {
	missing := errors.New("open /dev/net/tun: no such file")
	for _, tc := range []struct {
		attach   Attach
		unusable error
		proxied  bool
		says     string
	}{
		{"", nil, false, ""}, {"", missing, true, ""},
		{"auto", nil, false, ""}, {"auto", missing, true, ""},
		{"proxy", nil, true, ""}, {"proxy", missing, true, ""},
		{"device", nil, false, ""}, {"device", missing, false, "/dev/net/tun"},
		{"tap", nil, false, "auto, device or proxy"},
	} {
		got, err := tc.attach.Proxied(tc.unusable)
		if got != tc.proxied || (err != nil) != (tc.says != "") {
			t.Errorf("%q, %v: %v, %v", tc.attach, tc.unusable, got, err)
		}
		if err != nil {
			e := errdefs.From(err)
			if e.Class != errdefs.User || !strings.Contains(e.Error()+e.Remedy, tc.says) {
				t.Errorf("%q: %v", tc.attach, err)
			}
		}
	}
}
