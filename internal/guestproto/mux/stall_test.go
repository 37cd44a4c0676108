package mux

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// TestStall: a guest that lives but does not answer is given up while a stream waits.
func TestStall(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			go func() { // it greets, then takes bytes or not, and says nothing
				_, _ = far.Write(frame(frameHello, false, 0, guestproto.Marshal(nil, &guestproto.Hello{Major: 1})))
			}()
			taken := make(chan struct{})
			go func() {
				defer close(taken)
				b := make([]byte, 1<<10)
				for i := 0; reads || i < 2; i++ {
					if _, err := far.Read(b); err != nil {
						return
					}
				}
			}()
			c, err := Connect(near, Config{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.Open(guestproto.KindExec, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); !errors.Is(err, ErrStalled) {
				t.Errorf("reads %v: got %v", reads, err)
			}
			far.Close()
			<-taken
			<-c.Done()
		})
	}
}

// TestQuietStreamIsNoStall: a guest that answers pings may take its time.
func TestQuietStreamIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c, _ := pair(t, func(s *Stream, _ []byte) {
			<-release
			_ = s.SendMessage(&guestproto.Reply{N: 1}, true)
		})
		s, err := c.Open(guestproto.KindExec, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 100 { // long after every deadline
				<-time.After(stallTick)
			}
			close(release)
		}()
		var r guestproto.Reply
		if err := s.RecvMessage(&r); err != nil || r.N != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
