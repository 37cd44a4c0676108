package hello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"
)

// capture gives the bytes that a real client sends first.
func capture(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		_ = tls.Client(b, cfg).Handshake()
		_ = b.Close()
	}()
	_ = a.SetReadDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 1<<16)
	n := 0
	for {
		m, err := a.Read(buf[n:])
		if n += m; err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(buf[:n]); !errors.Is(err, ErrMore) {
			return buf[:n]
		}
	}
}

// split cuts the handshake message into records of n bytes.
func split(record []byte, n int) []byte {
	var out []byte
	for msg := record[5:]; len(msg) > 0; {
		k := min(n, len(msg))
		out = append(out, 22, 3, 1, byte(k>>8), byte(k))
		out = append(out, msg[:k]...)
		msg = msg[k:]
	}
	return out
}

func TestRealHello(t *testing.T) {
	raw := capture(t, &tls.Config{ServerName: "api.example.com", NextProtos: []string{"h2", "http/1.1"}})
	for _, n := range []int{1, 3, 50, 1 << 14} {
		b := split(raw, n)
		var p Parser
		for cut := range len(b) {
			if _, err := p.Parse(b[:cut]); !errors.Is(err, ErrMore) {
				t.Fatalf("records of %d, %d bytes of %d: %v", n, cut, len(b), err)
			}
		}
		h, err := p.Parse(append(b, "application data"...))
		if err != nil || h.Name != "api.example.com" || len(h.ALPN) != 2 || h.ECH {
			t.Errorf("records of %d: %+v, %v", n, h, err)
		}
		if whole, err := Parse(b); err != nil || whole.Name != h.Name {
			t.Errorf("records of %d at once: %+v, %v", n, whole, err)
		}
	}
}

func TestNoServerName(t *testing.T) {
	h, err := Parse(capture(t, &tls.Config{InsecureSkipVerify: true}))
	if err != nil || h.Name != "" {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestNotTLS(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\n", "SSH-2.0-x", "\x16\x02\x00", "\x80\x2e\x01"} {
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrNotTLS) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, b := range [][]byte{{22, 3, 1, 0, 0}, {22, 3, 1, 0xff, 0xff}, {22, 3, 1, 0, 1, 2}, {22, 3, 1, 0, 4, 1, 9, 9, 9}} {
		if _, err := Parse(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: %v", b, err)
		}
	}
}

func TestSecondServerNameIsRefused(t *testing.T) {
	raw := capture(t, &tls.Config{ServerName: "good.example.com"})
	name := []byte("good.example.com")
	i := bytes.Index(raw, name) - 9 // extension header, list length, type, name length
	ext := raw[i : i+9+len(name)]
	twice := append(append(append([]byte{}, raw[:i]...), ext...), raw[i:]...)
	add := len(ext)
	grow := func(at int) { // a 16-bit length
		v := int(twice[at])<<8 | int(twice[at+1])
		v += add
		twice[at], twice[at+1] = byte(v>>8), byte(v)
	}
	grow(3)
	grow(7)
	// The extensions' length stands before the first extension.
	off := 5 + 4 + 34
	off += 1 + int(twice[off])
	off += 2 + int(twice[off])<<8 + int(twice[off+1])
	off += 1 + int(twice[off])
	grow(off)
	if h, err := Parse(twice); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %+v, %v", h, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(capture(f, &tls.Config{ServerName: "api.example.com", NextProtos: []string{"h2"}}))
	f.Add(split(capture(f, &tls.Config{ServerName: "x.org"}), 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		if err != nil {
			return
		}
		// The verdict on a whole hello does not change with what follows it, nor with the split.
		again, err := Parse(append(bytes.Clone(b), 0xff, 0))
		if err != nil || again.Name != h.Name || again.ECH != h.ECH {
			t.Fatalf("%+v, then %+v %v", h, again, err)
		}
	})
}
