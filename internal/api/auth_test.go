package api_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/api"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestAuthentication(t *testing.T) {
	w := newWorld(t)
	const call = "/dsec.v1.SessionService/List"
	for _, tt := range []struct {
		name   string
		header []string
		status int
	}{
		{"key header", nil, 200},
		{"bearer", []string{"X-API-Key", "", "Authorization", "Bearer " + w.key}, 200},
		{"no key", []string{"X-API-Key", ""}, 401},
		{"wrong key", []string{"X-API-Key", "e2b_0000"}, 401},
		{"not a key", []string{"X-API-Key", strings.Repeat("x", 10_000)}, 401},
		{"basic", []string{"X-API-Key", "", "Authorization", "Basic Zm9v"}, 401},
		{"a project by header needs the socket", []string{"X-API-Key", "", "Dsec-Project", "default"}, 401},
	} {
		code, h, body := w.curl("POST", call, "{}", tt.header...)
		if code != tt.status {
			t.Errorf("%s: %d %s", tt.name, code, body)
		}
		if code == 401 && (detail(t, body)["reason"] != "unauthenticated" || h.Get("Www-Authenticate") == "") {
			t.Errorf("%s: %s", tt.name, body)
		}
	}
	if code, _, body := w.curl("GET", "/v1/sessions/s/files?path=/etc/passwd", "", "X-API-Key", ""); code != 401 || detail(t, body)["reason"] != "unauthenticated" {
		t.Error("plain HTTP without a key:", code, body)
	}
}

func TestProjectsAreApart(t *testing.T) {
	w := newWorld(t)
	id := w.session().ID()
	_, other, _ := w.keys.CreateKey(t.Context(), "other", "")
	c := w.client(dsec.Options{APIKey: other})
	s := c.Session(id)
	if _, err := s.Get(t.Context()); !dsec.IsReason(err, "not_found") {
		t.Error(err)
	}
	if _, err := s.Sh(t.Context(), "true"); !dsec.IsReason(err, "not_found") {
		t.Error(err)
	}
	if _, err := s.ReadFile(t.Context(), "/x", dsec.ReadOptions{}); !dsec.IsReason(err, "not_found") {
		t.Error(err)
	}
	// What all projects share is the operator's.
	for _, path := range []string{"KeyService/ListKeys", "KeyService/CreateKey", "NodeService/SetDraining", "TemplateService/RemoveTemplate"} {
		code, _, body := w.curl("POST", "/dsec.v1."+path, `{}`, "X-API-Key", other)
		if code != 403 || detail(t, body)["class"] != "policy" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _, body := w.curl("PUT", "/v1/templates/x", "tar", "X-API-Key", other); code != 403 {
		t.Error(code, body)
	}
}

func TestSocketNeedsNoKey(t *testing.T) {
	w := newWorld(t)
	c := w.client(dsec.Options{URL: "unix://" + w.sock, Project: "lab"})
	s, err := c.Create(t.Context(), dsec.CreateOptions{})
	if os.Geteuid() != 0 {
		if !dsec.IsReason(err, "unauthenticated") {
			t.Fatal("not root, and not refused:", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.Info().GetProject() != "lab" {
		t.Error("project", s.Info().GetProject())
	}
	if _, err := w.client(dsec.Options{URL: "unix://" + w.sock, APIKey: "e2b_no"}).Session(s.ID()).Get(t.Context()); !dsec.IsReason(err, "unauthenticated") {
		t.Error("a wrong key on the socket:", err)
	}
}

func TestRateLimit(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Rate = api.Rate{PerSecond: 0.001, Burst: 2} })
	for range 2 {
		if code, _, body := w.curl("POST", "/dsec.v1.SessionService/List", `{}`); code != 200 {
			t.Fatal(code, body)
		}
	}
	code, h, body := w.curl("POST", "/dsec.v1.SessionService/List", `{}`)
	if d := detail(t, body); code != 429 || d["reason"] != "rate_limited" || d["retryable"] != true || h.Get("Retry-After") != "1" {
		t.Error(code, h, body)
	}
	// Another project has its own bucket, and health needs none.
	_, other, _ := w.keys.CreateKey(t.Context(), "other", "")
	if code, _, body := w.curl("POST", "/dsec.v1.SessionService/List", `{}`, "X-API-Key", other); code != 200 {
		t.Error(code, body)
	}
	if code, _, _ := w.curl("GET", "/healthz", ""); code != 200 {
		t.Error("healthz", code)
	}
}

func TestSecretsStayOut(t *testing.T) {
	w := newWorld(t)
	const secret = "hunter2-Zq9"
	s, err := w.client(dsec.Options{}).Create(t.Context(), dsec.CreateOptions{Secrets: map[string]string{"TOKEN": secret}, IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := ""
	for _, secrets := range []string{`{"A=":"` + secret + `"}`, `{"A":"` + secret + `\u0000"}`} {
		_, _, body := w.curl("POST", "/dsec.v1.SessionService/Create", `{"session":{"secrets":`+secrets+`}}`)
		refused += body
	}
	s.Sh(t.Context(), "panic")
	_, _, metrics := w.curl("GET", "/metrics", "")
	for name, text := range map[string]string{"inspect": in.String(), "error": refused, "log": w.logs.String(), "metrics": metrics} {
		if strings.Contains(text, secret) || strings.Contains(text, w.key) {
			t.Errorf("a secret is in the %s", name)
		}
		if name == "metrics" && strings.Contains(text, s.ID()) {
			t.Error("a session's id is a label of the metrics")
		}
	}
	if w.ctl.last.Secrets["TOKEN"] != secret && w.ctl.creates == 1 {
		t.Error("the secret did not arrive")
	}
}

func TestKeysByAPI(t *testing.T) {
	w := newWorld(t)
	code, _, body := w.curl("POST", "/dsec.v1.KeyService/CreateKey", `{"project":"lab","name":"ci"}`)
	if code != http.StatusOK || !strings.Contains(body, "e2b_") {
		t.Fatal(code, body)
	}
	code, _, body = w.curl("POST", "/dsec.v1.KeyService/ListKeys", `{"project":"lab"}`)
	if code != 200 || strings.Contains(body, "e2b_") || !strings.Contains(body, `"ci"`) {
		t.Error(code, body)
	}
	if code, _, body = w.curl("POST", "/dsec.v1.KeyService/RevokeKey", `{"id":"k0"}`); code != 200 {
		t.Error(code, body)
	}
	if _, err := w.client(dsec.Options{}).Session("s0000000000000000000000000").Get(context.Background()); !dsec.IsReason(err, "unauthenticated") {
		t.Error("a revoked key:", err)
	}
}
