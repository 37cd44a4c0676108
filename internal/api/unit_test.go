package api

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/keyed"
)

// A reason that is added and forgotten here would reach clients as an unknown failure.
func TestEveryReasonHasACode(t *testing.T) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "../errdefs/errdefs.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if typ, ok := v.Type.(*ast.Ident); !ok || typ.Name != "Reason" {
			return true
		}
		r := errdefs.Reason(strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`))
		if _, ok := codes[r]; !ok {
			t.Errorf("reason %s has no code", r)
		}
		found++
		return true
	})
	if found != len(codes) {
		t.Errorf("%d reasons, %d codes", found, len(codes))
	}
}

func TestGuestsAreNeverInfrastructure(t *testing.T) {
	for _, class := range []string{"infrastructure", "", "x", "policy"} {
		if e := guestError(&guestproto.WireError{Class: class, Reason: "internal"}); e.Class != errdefs.Policy {
			t.Errorf("%q became %q", class, e.Class)
		}
	}
	if e := guestError(&guestproto.WireError{Class: "user", Reason: "made up"}); e.Class != errdefs.User || e.Reason != errdefs.InvalidArgument {
		t.Error(e)
	}
}

func TestUnforeseenErrorsAreNotSaid(t *testing.T) {
	a := New(Config{})
	e := a.typed(context.Background(), fmt.Errorf("open /var/lib/dsec/secret: permission denied"))
	if e.Class != errdefs.Infrastructure || bytes.Contains([]byte(e.Error()), []byte("/var")) || e.Cause == nil {
		t.Error(e)
	}
}

func TestForeseenErrorsNameNoFiles(t *testing.T) {
	_, cause := os.Open("/var/lib/dsec/secret")
	e := errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "record /var/lib/dsec/secret", "cannot be read: %w", cause)
	as := func(operator bool) string {
		return told(context.WithValue(context.Background(), callerKey{}, caller{operator: operator}), e).Error()
	}
	if strings.Contains(as(false), "/var") || as(true) != e.Error() {
		t.Error(as(false), as(true))
	}
	for _, r := range []*dsecv1.SessionResult{wireCreated(control.CreateResult{Err: e}), wireOutcomes([]control.StopResult{{Err: e}})[0]} {
		if strings.Contains(r.GetError().GetMessage()+r.GetError().GetObject(), "/var") {
			t.Error(r)
		}
	}
	if wireCreated(control.CreateResult{}).GetError() != nil {
		t.Error("no error became one")
	}
}

func TestUnknownBinaryFields(t *testing.T) {
	extra := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	inner, _ := proto.Marshal(&dsecv1.Command{Argv: []string{"a"}})
	inner = append(inner, extra...)
	nested := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inner)
	for name, b := range map[string][]byte{"top": extra, "nested": nested} {
		err := newBinaryCodec().UnmarshalRead(context.Background(), bytes.NewReader(b), &dsecv1.RunRequest{})
		if e := errdefs.From(err); err == nil || e.Object != "field 999" || e.Class != errdefs.User {
			t.Errorf("%s: %v", name, err)
		}
	}
	good, _ := proto.Marshal(&dsecv1.RunRequest{Command: &dsecv1.Command{Env: map[string]string{"a": "b"}, Pty: &dsecv1.Pty{Rows: 1}}})
	if err := newBinaryCodec().UnmarshalRead(context.Background(), bytes.NewReader(good), &dsecv1.RunRequest{}); err != nil {
		t.Error(err)
	}
}

func TestLimiterIsBounded(t *testing.T) {
	l := newLimiter(Rate{PerSecond: 0.0001, Burst: 1})
	for i := range 3 * maxBuckets {
		if err := l.allow(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.at) != maxBuckets || l.order.Len() != maxBuckets {
		t.Error(len(l.at), l.order.Len())
	}
	if err := l.allow(fmt.Sprint(3*maxBuckets - 1)); err == nil {
		t.Error("the newest was forgotten")
	}
}

func TestSignalNames(t *testing.T) {
	for given, want := range map[string]string{"SIGTERM": "SIGTERM", "term": "SIGTERM", "9": "SIGKILL", "int": "SIGINT"} {
		if got, err := signalName(given); got != want || err != nil {
			t.Error(given, got, err)
		}
	}
	for _, given := range []string{"", "0", "SIG", "99", "-1", "rm"} {
		if got, err := signalName(given); err == nil {
			t.Error(given, got)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	if got := requestID("abc-1.2"); got != "abc-1.2" {
		t.Error(got)
	}
	for _, given := range []string{"", "a b", "a\nb", string(make([]byte, 65))} {
		if got := requestID(given); got == given || len(got) != 24 {
			t.Errorf("%q: %q", given, got)
		}
	}
}

func TestLargeRequestsAreBounded(t *testing.T) {
	var l largeBodies
	big := httptest.NewRequest("POST", dsecv1connect.SessionServiceCreateProcedure, nil)
	big.ContentLength = 64 << 20
	n := 0
	for l.take(l.size(big)) == nil {
		n++
	}
	if n != maxLarge/(64<<20) {
		t.Error(n)
	}
	small := httptest.NewRequest("POST", dsecv1connect.SessionServiceCreateProcedure, nil)
	if err := l.take(l.size(small)); err != nil {
		t.Error("a small one:", err)
	}
	for range n {
		l.give(l.size(big))
	}
	if got := l.bytes.Load(); got != 0 {
		t.Error(got, "bytes are still counted")
	}
	big.ContentLength = -1
	if got := l.size(big); got != int64(maxRequest(big.URL.Path)) {
		t.Error("one that does not say its size counts", got)
	}
}

func TestGathered(t *testing.T) {
	var k gathered
	for _, ev := range []guestproto.ExecEvent{
		{Kind: guestproto.EventOutput, Data: []byte("he")}, {Kind: guestproto.EventOutput, Data: []byte("ad")},
		{Kind: guestproto.EventGap, Dropped: 10}, {Kind: guestproto.EventOutput, Data: []byte("mid")},
		{Kind: guestproto.EventGap, Dropped: 7}, {Kind: guestproto.EventOutput, Data: []byte("tail")},
	} {
		k.add(&ev)
	}
	var o guestproto.Output
	k.into(&o)
	if string(o.Head) != "head" || string(o.Tail) != "tail" || o.Dropped != 20 || o.Total != 28 {
		t.Errorf("%+v", o)
	}
}

func TestCommandSize(t *testing.T) {
	for _, c := range []*dsecv1.Command{
		{Script: strings.Repeat("x", maxText+1)},
		{Argv: []string{"a", strings.Repeat("x", maxText)}},
		{Argv: []string{"a"}, Env: map[string]string{"A": strings.Repeat("x", maxText)}},
	} {
		if _, _, err := domainCommand(c); errdefs.From(err).Reason != errdefs.TooLarge {
			t.Error(err)
		}
	}
	if _, _, err := domainCommand(&dsecv1.Command{Script: strings.Repeat("x", 200<<10)}); err != nil {
		t.Error("200 KiB:", err)
	}
}

// Messages that do not announce their size are counted as they are read.
func TestMessagesInFlightAreBounded(t *testing.T) {
	a := &API{}
	a.large.bytes.Store(maxLarge - 1<<20)
	body := func() (*http.Request, func()) {
		r := httptest.NewRequest("POST", dsecv1connect.ExecServiceRunProcedure, io.LimitReader(zeros{}, 3<<20))
		return r, a.guardBody(httptest.NewRecorder(), r, held{most: 64 << 20})
	}
	r, release := body()
	_, err := io.Copy(io.Discard, r.Body)
	if e := errdefs.From(err); e.Reason != errdefs.RateLimited || !e.Retryable {
		t.Error("over the bound:", err)
	}
	release()
	a.large.bytes.Store(0)
	r, release = body()
	if _, err := io.Copy(io.Discard, r.Body); err != nil || a.large.bytes.Load() != 2<<20 {
		t.Error(err, a.large.bytes.Load())
	}
	release()
	if n := a.large.bytes.Load(); n != 0 {
		t.Error(n, "bytes are still counted")
	}
}

// A compressed message counts as what it may become, not as what comes over the wire.
func TestCompressedMessagesCountUnpacked(t *testing.T) {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		for encoding, want := range map[string]int64{"gzip": 15 << 20, "identity": 0, "": 0} {
			a := &API{}
			r := httptest.NewRequest("POST", "/process.Process/SendInput", io.LimitReader(zeros{}, 20<<10))
			r.Header.Set(name, encoding)
			release := a.guardBody(httptest.NewRecorder(), r, FacadeRoute{Message: 16 << 20}.held(r.Header))
			if _, err := io.Copy(io.Discard, r.Body); err != nil || a.large.bytes.Load() != want {
				t.Errorf("%s: %s: %d bytes are counted, %v", name, encoding, a.large.bytes.Load(), err)
			}
			release()
			if n := a.large.bytes.Load(); n != 0 {
				t.Error(n, "bytes are still counted")
			}
		}
	}
}

// A stream of messages holds one at a time, however many have gone by.
func TestStreamsOfMessagesHoldOne(t *testing.T) {
	a := &API{}
	r := httptest.NewRequest("POST", "/process.Process/StreamInput", io.LimitReader(zeros{}, 64<<20))
	release := a.guardBody(httptest.NewRecorder(), r, FacadeRoute{Message: 4 << 20, Proxied: true}.held(r.Header))
	if _, err := io.Copy(io.Discard, r.Body); err != nil || a.large.bytes.Load() != 3<<20 {
		t.Error(err, a.large.bytes.Load())
	}
	release()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestRangesToTheEnd(t *testing.T) {
	for h, want := range map[string]byteRange{
		"bytes=0-9223372036854775807": {length: -1},
		"bytes=5-":                    {first: 5, length: -1},
		"bytes=4611686018427387904-9223372036854775806": {first: 1 << 62, length: 1<<62 - 1},
	} {
		if got, err := parseRange(h); err != nil || *got != want {
			t.Errorf("%s: %+v %v", h, got, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7", "[::ffff:192.0.2.7]:80": "192.0.2.7", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "@": "of the machine itself", "": "of the machine itself",
	} {
		if got := addressOf(remote); got != want {
			t.Errorf("%s: %s", remote, got)
		}
	}
}

// What a create is known by tells nothing of its secrets to who does not have the key.
func TestDigestsAreKeyed(t *testing.T) {
	q := &dsecv1.NewSession{Env: map[string]string{"TOKEN": "hunter2"}}
	sum := func(k *keyed.Key) string {
		d, err := New(Config{Digests: k}).digest(q)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	one := keyed.New()
	first := sum(one)
	if again := sum(one); again != first {
		t.Errorf("not the same again: %q and %q", first, again)
	}
	if first == sum(nil) {
		t.Error("the key does not matter")
	}
}
