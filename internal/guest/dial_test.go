package guest_test

import (
	"net"
	"testing"
	"time"
)

// A dialled peer that says nothing does not keep a guest in use whose client has gone after its last word.
func TestSilentPeerOfALostClient(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := newBox(t)
	c := b.dial()
	conn, err := c.Dial(soon(t), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := peer.Read(make([]byte, 1)); n != 0 || err == nil { // the end has arrived
		t.Fatal(n, err)
	}
	c.Close()
	select {
	case <-b.served:
	case <-time.After(20 * time.Second):
		t.Error("the connection is served still")
	}
}
