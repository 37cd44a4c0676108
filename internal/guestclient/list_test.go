package guestclient

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// A guest may not fill the node's memory by what it says of its ops.
func TestListIsBoundedBySize(t *testing.T) {
	info := guestproto.OpInfo{OpID: "x", Result: &guestproto.Result{Stdout: guestproto.Output{Head: make([]byte, 8<<10)}}}
	for range 50 {
		info.Argv = append(info.Argv, strings.Repeat("a", 1000))
	}
	var sent atomic.Int64
	f := serveWith(t, func(s *mux.Stream, _ []byte) {
		defer s.Close()
		for s.SendMessage(&info, false) == nil {
			sent.Add(1)
		}
	})
	list, err := (&Client{f}).List(t.Context())
	wantError(t, err, errdefs.Policy, errdefs.BoxTampered)
	if list != nil || sent.Load() > maxListBytes/(50*1000)+20 {
		t.Errorf("%d ops were taken", sent.Load())
	}
}
