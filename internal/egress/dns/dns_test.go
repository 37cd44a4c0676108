package dns

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func query(t testing.TB, name string, typ dnsmessage.Type) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnswers(t *testing.T) {
	q, err := ParseQuery(query(t, "API.example.com.", dnsmessage.TypeA))
	if err != nil || q.Name != "API.example.com" || q.Type != "A" || !q.WantsAddrs() {
		t.Fatalf("%+v, %v", q, err)
	}
	for name, tc := range map[string]struct {
		b    []byte
		code dnsmessage.RCode
		n    int
	}{
		"addresses": {q.Answer([]netip.Addr{netip.MustParseAddr("203.0.113.4"), netip.MustParseAddr("203.0.113.5")}, 30*time.Second), 0, 2},
		"no data":   {q.NoData(), 0, 0},
		"no name":   {q.NoName(), dnsmessage.RCodeNameError, 0},
		"failed":    {q.Failed(), dnsmessage.RCodeServerFailure, 0},
	} {
		var m dnsmessage.Message
		if err := m.Unpack(tc.b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m.ID != 7 || !m.Response || m.RCode != tc.code || len(m.Answers) != tc.n || m.Questions[0].Name.String() != "API.example.com." {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func TestAnswerFitsEveryClient(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 61) + "."
	q, err := ParseQuery(query(t, long, dnsmessage.TypeA))
	if err != nil {
		t.Fatal(err)
	}
	addrs := make([]netip.Addr, 100)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
	}
	if n := len(q.Answer(addrs, time.Minute)); n == 0 || n > 512 {
		t.Errorf("the answer has %d bytes", n)
	}
}

func TestRefusesWhatIsNoQuery(t *testing.T) {
	two := dnsmessage.Message{Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("a."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
		{Name: dnsmessage.MustNewName("b."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b2, _ := two.Pack()
	reply := query(t, "a.", dnsmessage.TypeA)
	reply[2] |= 0x80
	chaos := query(t, "a.", dnsmessage.TypeTXT)
	chaos[len(chaos)-1] = 3
	for name, b := range map[string][]byte{"empty": nil, "short": {1, 2, 3}, "two questions": b2, "a reply": reply, "class chaos": chaos, "root": query(t, ".", dnsmessage.TypeNS)} {
		if _, err := ParseQuery(b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add(query(f, "a.example.com.", dnsmessage.TypeA))
	f.Add(query(f, "x.", dnsmessage.TypeTXT))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := ParseQuery(b)
		if err != nil {
			return
		}
		for _, out := range [][]byte{q.NoName(), q.Answer([]netip.Addr{netip.AddrFrom4([4]byte{1, 2, 3, 4})}, time.Second)} {
			var m dnsmessage.Message
			if err := m.Unpack(out); err != nil || !m.Response {
				t.Fatalf("%q: %v", q.Name, err)
			}
		}
	})
}
