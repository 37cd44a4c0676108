package guest_test

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/dsec-platform/dsec/internal/guest"
	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// A client that has its answer need not wait for the stream's end: the operation is done, and its repetition says so.
func TestAnswerOfAFileOperationStands(t *testing.T) {
	set := &setup.Settings{AgentCgroup: -1, AgentMemory: -1, AgentPids: -1}
	left := make(chan struct{})
	leave := sync.OnceFunc(func() { close(left) })
	srv := guest.NewServer(guest.Options{
		Settings: func() *setup.Settings { return set },
		Files: func(rw io.ReadWriteCloser) {
			c, err := mux.NewConn(rw, mux.Config{Accept: func(s *mux.Stream, _ []byte) {
				_, _ = io.Copy(io.Discard, s)
				_ = s.SendMessage(&guestproto.FileInfo{Size: 4}, false)
				<-left
				_ = s.CloseSend()
			}})
			if err == nil {
				_ = c.Serve()
			}
		},
	})
	t.Cleanup(srv.Close)
	c := (&box{t: t, srv: srv}).dial()
	o := guestclient.WriteOptions{OpID: "w", Path: "/f", Size: 4}
	for range 2 {
		info, err := c.WriteFile(soon(t), o, strings.NewReader("data"))
		if err != nil || info.Size != 4 {
			t.Fatalf("%+v, %v", info, err)
		}
		// The guest knows that the client is gone when it answers this.
		if err := c.Ping(soon(t)); err != nil {
			t.Fatal(err)
		}
		leave()
	}
}
