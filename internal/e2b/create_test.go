package e2b

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// asked reads a create and makes a session's creation of it, as the handler does.
func asked(body string) (newSandbox, error) {
	o, err := parseObject("", []byte(body))
	if err != nil {
		return newSandbox{}, err
	}
	return readNewSandbox(o, timeoutV2)
}

func TestCreateIsRead(t *testing.T) {
	q, err := asked(`{"templateID":"t","timeout":7.0,"metadata":{"a b":"c"},"envVars":{"A":""},"secure":true,"autoPause":true,"autoPauseMemory":true,
		"autoResume":{"enabled":true},"allow_internet_access":true,"network":{"allowPublicTraffic":true,"denyOut":["10.0.0.0/8"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	f := New(Config{})
	req, err := f.request(q, &Resolved{Template: &template.Template{Name: "n", Version: "v"}, ID: "t", Alias: "al"})
	if err != nil {
		t.Fatal(err)
	}
	if req.Template != "n@v" || req.Lifetime != 7*time.Second || req.AtDeadline != "suspend" || req.Count != 1 || req.Env != nil || len(req.Secrets) != 1 {
		t.Errorf("%+v", req)
	}
	for k, v := range map[string]string{"e2b/a b": "c", labelAlias: "al", labelTemplate: "t", labelPublic: "1", labelAutoResume: "1", labelSandbox: "1"} {
		if req.Labels[k] != v {
			t.Errorf("label %s is %q", k, req.Labels[k])
		}
	}
	s := req.Spec
	if s.ReadOnlyRoot() || !s.NewPrivileges || s.Session.MaxIdle() != 0 || s.Session.MaxRuntime() != 0 || s.User != "user" || s.Network.EgressPolicy != spec.EgressDeny || len(s.FS.WritableDirs) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestDefaultsOfCreate(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{"templateID":"t"}`: timeoutV2 * time.Second, `{"templateID":"t","timeout":null}`: timeoutV2 * time.Second, `{"templateID":"t","timeout":1}`: time.Second,
	} {
		if q, err := asked(body); err != nil || q.timeout != want {
			t.Errorf("%s: %+v %v", body, q, err)
		}
	}
}

// TestNothingIsIgnored: what nobody acts on is refused by its name, unless it asks for nothing.
func TestNothingIsIgnored(t *testing.T) {
	for _, c := range []struct{ field, value string }{
		{"mcp", `{"x":{}}`}, {"iam", `{"tokens":{"a":{}}}`}, {"volumeMounts", `[{"name":"v","path":"/v"}]`}, {"autoPauseMemory", `false`},
		{"autoResume", `{"enabled":true}`}, {"frobnicate", `true`}, {"Timeout", `3`}, {"envvars", `{"A":"b"}`},
		{"network", `{"egressProxy":{"address":"p:1"}}`}, {"network", `{"rules":{"a.com":[{}]}}`}, {"network", `{"maskRequestHost":"x"}`},
		{"network", `{"httpsPorts":[443]}`}, {"network", `{"novel":1}`},
		{"network", `{"denyOut":["example.com"]}`},
	} {
		err := accepts(fmt.Sprintf(`{"templateID":"t",%q:%s}`, c.field, c.value))
		e := errdefs.From(err)
		if err == nil || Status(err) != 400 || !strings.Contains(e.Object, c.field) || e.Remedy == "" {
			t.Errorf("%s: %s: %v", c.field, c.value, err)
		}
	}
	for _, quiet := range []string{`"mcp":null`, `"iam":{}`, `"volumeMounts":[]`, `"frobnicate":false`, `"frobnicate":null`, `"frobnicate":""`, `"frobnicate":0`, `"network":{"rules":{}}`, `"network":{"httpsPorts":[]}`, `"autoResume":{"enabled":false}`} {
		if err := accepts(`{"templateID":"t",` + quiet + `}`); err != nil {
			t.Errorf("%s asks for nothing: %v", quiet, err)
		}
	}
}

func accepts(body string) error {
	q, err := asked(body)
	if err != nil {
		return err
	}
	_, err = New(Config{}).request(q, &Resolved{Template: &template.Template{Name: "n", Version: "v"}})
	return err
}

func TestMalformedCreates(t *testing.T) {
	for name, body := range map[string]string{
		"no template": `{}`, "empty template": `{"templateID":""}`, "long template": `{"templateID":"` + strings.Repeat("x", 600) + `"}`,
		"not an object": `[]`, "null": `null`, "torn": `{"templateID":"t"`, "two": `{"templateID":"t"}{}`, "number for a name": `{"templateID":7}`,
		"text for a number": `{"templateID":"t","timeout":"60"}`, "fraction": `{"templateID":"t","timeout":1.5}`, "negative": `{"templateID":"t","timeout":-1}`,
		"zero": `{"templateID":"t","timeout":0}`, "a year": `{"templateID":"t","timeout":31536000}`, "huge": `{"templateID":"t","timeout":1e300}`,
		"metadata of numbers": `{"templateID":"t","metadata":{"a":1}}`, "metadata of null": `{"templateID":"t","metadata":{"a":null}}`,
		"metadata without a name": `{"templateID":"t","metadata":{"":"x"}}`, "large metadata": `{"templateID":"t","metadata":{"a":"` + strings.Repeat("x", 33<<10) + `"}}`,
		"variable with =": `{"templateID":"t","envVars":{"A=B":"x"}}`, "NUL": `{"templateID":"t","envVars":{"A":"\u0000"}}`,
		"network is a list": `{"templateID":"t","network":["x"]}`, "text for a boolean": `{"templateID":"t","autoPause":"yes"}`,
	} {
		if _, err := asked(body); err == nil || Status(err) != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecretsAreNotSaidBack(t *testing.T) {
	_, err := asked(`{"templateID":"t","envVars":{"KEY":"hush\u0000"}}`)
	if err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "KEY") {
		t.Error(err)
	}
}

func TestPolicies(t *testing.T) {
	no, yes := false, true
	deny, open := spec.Network{EgressPolicy: spec.EgressDeny}, spec.Network{EgressPolicy: spec.EgressOpen}
	some := spec.Network{EgressPolicy: spec.EgressWhitelist, AllowedDomains: []string{"b.com"}}
	all := []string{"0.0.0.0/0"}
	for _, c := range []struct {
		name     string
		n        network
		standard spec.Network
		want     string // "" when refused
	}{
		{"nothing said", network{}, deny, spec.EgressDeny},
		{"the operator's is open", network{internet: &yes}, open, spec.EgressOpen},
		{"no internet", network{internet: &no}, open, spec.EgressDeny},
		{"all denied", network{denyOut: all}, open, spec.EgressDeny},
		{"some allowed", network{denyOut: all, allowOut: []string{"1.2.3.4", "*.a.com"}}, open, spec.EgressWhitelist},
		{"no internet but some", network{internet: &no, allowOut: []string{"a.com"}}, deny, spec.EgressWhitelist},
		{"some denied where nothing goes out", network{denyOut: []string{"10.0.0.0/8"}}, deny, spec.EgressDeny},
		{"some denied of everything", network{denyOut: []string{"10.0.0.0/8"}}, open, ""},
		{"some allowed where nothing goes out", network{allowOut: []string{"a.com"}}, deny, spec.EgressWhitelist},
		{"some denied of some", network{denyOut: []string{"10.0.0.0/8"}}, some, ""},
		{"a name denied", network{denyOut: []string{"a.com"}}, deny, ""},
	} {
		got, err := c.n.policy(c.standard)
		if (err != nil) != (c.want == "") || got.EgressPolicy != c.want {
			t.Errorf("%s: %+v %v", c.name, got, err)
		}
	}
	more := network{allowOut: []string{"a.com", "1.2.3.4"}}
	if got, err := more.policy(some); err != nil || !slices.Equal(got.AllowedDomains, []string{"b.com", "a.com"}) || !slices.Equal(got.AllowedIPs, []string{"1.2.3.4"}) || len(some.AllowedDomains) != 1 {
		t.Errorf("on top of the operator's: %+v %v", got, err)
	}
}

func FuzzCreate(f *testing.F) {
	f.Add([]byte(`{"templateID":"t","timeout":7,"metadata":{"a":"b"},"envVars":{"A":"b"},"network":{"denyOut":["0.0.0.0/0"]},"autoResume":{"enabled":true}}`))
	f.Add([]byte(`{"templateID":"t","x":[[]],"autoPause":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := parseObject("", body)
		if err != nil {
			return
		}
		q, err := readNewSandbox(o, timeoutV1)
		if err != nil {
			if s := Status(err); s != 400 {
				t.Fatalf("%d: %v", s, err)
			}
			return
		}
		for name, v := range o.fields {
			if says(v) {
				t.Fatalf("field %q was neither read nor refused: %s", name, v)
			}
		}
		if q.timeout <= 0 || q.template == "" {
			t.Fatalf("%+v", q)
		}
	})
}
