package mcp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/spec"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// A part of a text ends with a whole character, and nothing else is cut off. A part
// that is less than a character stays: reading must go on.
func TestWholeCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(rapid.String().Draw(t, "text"))
		part := text[:rapid.IntRange(0, len(text)).Draw(t, "length")]
		got := whole(part)
		if len(part) > 0 && len(got) == 0 {
			t.Fatalf("of %q nothing is left", part)
		}
		if !utf8.Valid(got) && len(part) >= utf8.UTFMax || !bytes.HasPrefix(part, got) || len(part)-len(got) >= utf8.UTFMax {
			t.Fatalf("of %q it leaves %q", part, got)
		}
		if utf8.Valid(part) && len(got) != len(part) {
			t.Fatalf("of %q, which ends with a whole character, it leaves %q", part, got)
		}
	})
	for _, b := range []string{"", "\xff", "\xff\xff\xff\xff\xff", "ab\x80"} {
		if got := whole([]byte(b)); string(got) != b {
			t.Errorf("of %q, which is no text, it leaves %q", b, got)
		}
	}
}

// What the call says is laid over what the server was started with.
func TestCreateOptions(t *testing.T) {
	s := New(Options{
		Session: dsec.CreateOptions{Template: "python", Env: map[string]string{"A": "1", "B": "1"}, Job: "j", SpecYAML: "as read by the command line"},
		Spec:    spec.Sandbox{MemLimit: 1 << 20, CPULimit: 1, User: "root"},
	})
	yes := true
	o, err := s.options(createIn{Memory: "2Mi", WritableRoot: &yes, Env: map[string]string{"B": "2"}, Labels: map[string]string{"l": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if o.Template != "python" || o.Job != "j" || o.Env["A"] != "1" || o.Env["B"] != "2" || o.Labels["l"] != "x" || o.SpecYAML != "" {
		t.Errorf("options: %+v", o)
	}
	if o.Spec.GetMemLimit() != 2<<20 || o.Spec.GetCpuLimit() != 1 || o.Spec.GetUser() != "root" {
		t.Errorf("spec: %v", o.Spec)
	}
	if again, err := s.options(createIn{}); err != nil || again.Env["B"] != "1" || again.Spec.GetMemLimit() != 1<<20 {
		t.Errorf("a call changes the next one's: %+v, %v", again, err)
	}
	if _, err := s.options(createIn{Memory: "-"}); !dsec.IsReason(err, "invalid_argument") {
		t.Errorf("memory: %v", err)
	}
}

func TestCommands(t *testing.T) {
	for _, x := range []struct {
		in   execIn
		want string // part of the refusal
	}{
		{execIn{}, "script and argv"},
		{execIn{Script: "x", Argv: []string{"x"}}, "script and argv"},
		{execIn{Argv: []string{"x"}, Shell: "main"}, "takes a script"},
		{execIn{Script: "x", Timeout: -1}, "out of range"},
		{execIn{Script: "x", Timeout: 1e12}, "out of range"},
		{execIn{Script: "x", MaxOutput: maxOutput + 1}, "out of range"},
		{execIn{Script: "x", Timeout: 1e-9, MaxOutput: 1}, ""},
	} {
		c, err := x.in.command()
		switch {
		case x.want == "" && (err != nil || c.Timeout <= 0 || c.MaxOutput != 1 || c.OpID == ""):
			t.Errorf("%+v: %+v, %v", x.in, c, err)
		case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%+v: %v, want %q", x.in, err, x.want)
		}
	}
}

func TestConnectionBounds(t *testing.T) {
	cn := newConnection(nil, 2)
	for range 2 {
		if err := cn.begin(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cn.begin(); !dsec.IsReason(err, "quota_exceeded") {
		t.Errorf("a third session: %v", err)
	}
	cn.made("", false) // it could not be made
	if err := cn.begin(); err != nil {
		t.Errorf("after one that was not made: %v", err)
	}
	cn.made("a", false)
	cn.made("b", false)
	cn.forget("a")
	if err := cn.begin(); err != nil {
		t.Errorf("after a stop: %v", err)
	}
	cn.made("", false)
	if err := cn.stopAll(); err != nil { // without a lease there is nothing to stop
		t.Error(err)
	}
	if err := cn.begin(); !dsec.IsReason(err, "canceled") {
		t.Errorf("after the end: %v", err)
	}
}

func TestFaults(t *testing.T) {
	if f := faultOf(&dsec.Error{Class: "limit", Reason: "queue_full", Retryable: true}); f.Class != "limit" || f.Reason != "queue_full" || !f.Retryable {
		t.Errorf("an error of DSec: %+v", f)
	}
	if f := faultOf(errors.New("validating")); f.Class != "user" || f.Reason != "invalid_argument" || f.Remedy == "" {
		t.Errorf("the protocol's error: %+v", f)
	}
}
