package api_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/store"
)

// noBoxes is a node that has none: what leases do with sessions is tested where it is done.
type noBoxes struct {
	node.API // nil: nothing else is asked of it
	events   chan node.Event
}

func (n noBoxes) Inventory(context.Context) ([]node.Inventory, error) { return nil, nil }
func (n noBoxes) Events() <-chan node.Event                           { return n.events }

// leaseWorld is a gateway before a real control plane's leases, with the key of a second project.
type leaseWorld struct {
	*world
	foreign string
}

func newLeaseWorld(t *testing.T) *leaseWorld {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "dsec.db"))
	if err != nil {
		t.Fatal(err)
	}
	ctl := control.New(control.Config{Store: s, Node: noBoxes{events: make(chan node.Event)}})
	if err := ctl.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctl.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.EnsureProject(t.Context(), store.Project{ID: "other", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	w := &leaseWorld{world: newWorld(t, func(c *api.Config) { c.Leases = ctl })}
	_, w.foreign, _ = w.keys.CreateKey(t.Context(), "other", "second")
	return w
}

// lease calls LeaseService with the key of a project, and gives the status and the answer, or the error's detail.
func (w *leaseWorld) lease(key, method, body string) (int, map[string]any) {
	w.t.Helper()
	code, _, text := w.curl("POST", "/dsec.v1.LeaseService/"+method, body, "X-API-Key", key)
	if code != 200 {
		return code, detail(w.t, text)
	}
	answer := map[string]any{}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
	return code, answer
}

func (w *leaseWorld) make(body string) string {
	w.t.Helper()
	code, answer := w.lease(w.key, "CreateLease", body)
	l, _ := answer["lease"].(map[string]any)
	id, _ := l["id"].(string)
	if code != 200 || id == "" {
		w.t.Fatal(code, answer)
	}
	return id
}

func TestLeaseRequests(t *testing.T) {
	w := newLeaseWorld(t)
	for _, c := range []struct {
		name, method, body string
		status             int
		want               string // the reason, or what the answer has
	}{
		{"defaults", "CreateLease", `{}`, 200, `"ttl_ms":"30000"`},
		{"as asked", "CreateLease", `{"ttl_ms": 1000, "on_expiry": "suspend", "idempotency_key": "a"}`, 200, `"on_expiry":"suspend"`},
		{"the same again", "CreateLease", `{"ttl_ms": 1000, "on_expiry": "suspend", "idempotency_key": "a"}`, 200, `"state":"live"`},
		{"the same key, another request", "CreateLease", `{"ttl_ms": 2000, "idempotency_key": "a"}`, 409, "idempotency_clash"},
		{"too short a ttl", "CreateLease", `{"ttl_ms": 999}`, 400, "invalid_argument"},
		{"a negative ttl", "CreateLease", `{"ttl_ms": -1}`, 400, "invalid_argument"},
		{"too long a ttl", "CreateLease", `{"ttl_ms": 86400001}`, 400, "invalid_argument"},
		{"another end", "CreateLease", `{"on_expiry": "Stop"}`, 400, "invalid_argument"},
		{"a long key", "CreateLease", `{"idempotency_key": "` + strings.Repeat("k", 129) + `"}`, 400, "invalid_argument"},
		{"an unknown field", "CreateLease", `{"ttl": 1000}`, 400, "invalid_argument"},
		{"no id", "RenewLease", `{}`, 400, "invalid_argument"},
		{"not an id", "GetLease", `{"lease_id": "../../etc/passwd"}`, 400, "invalid_argument"},
		{"not an id, released", "ReleaseLease", `{"lease_id": "L0000000000000000000000000"}`, 400, "invalid_argument"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, answer := w.lease(w.key, c.method, c.body)
			text, _ := json.Marshal(answer)
			if c.status != 200 {
				if code != c.status || answer["reason"] != c.want || answer["class"] != "user" || answer["remedy"] == nil {
					t.Errorf("%d %s, want %d %s", code, text, c.status, c.want)
				}
			} else if code != 200 || !strings.Contains(string(text), c.want) {
				t.Errorf("%d %s, want %s", code, text, c.want)
			}
		})
	}
}

// TestLeaseStates: what each call says of a lease that is not there, another's, released, or expired.
func TestLeaseStates(t *testing.T) {
	w := newLeaseWorld(t)
	live, foreign, released := w.make(`{}`), w.make(`{}`), w.make(`{}`)
	expired, suspended := w.make(`{"ttl_ms": 1000}`), w.make(`{"ttl_ms": 1000, "on_expiry": "suspend"}`)
	if code, answer := w.lease(w.key, "ReleaseLease", `{"lease_id": "`+released+`"}`); code != 200 {
		t.Fatal(code, answer)
	}
	for _, id := range []string{expired, suspended} {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			code, answer := w.lease(w.key, "GetLease", `{"lease_id": "`+id+`"}`)
			if l, _ := answer["lease"].(map[string]any); code == 200 && l["state"] == "expired" {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it does not expire:", code, answer)
			}
		}
	}
	for _, c := range []struct {
		name, key, id string
		renew         string // "" for what works
		get           string
		release       string
	}{
		{"unknown", w.key, "l0000000000000000000000000", "not_found", "not_found", "not_found"},
		{"of another project", w.foreign, foreign, "not_found", "not_found", "not_found"},
		{"released", w.key, released, "conflict", "", ""},
		{"expired", w.key, expired, "owner_lost", "", ""},
		{"live", w.key, live, "", "", ""},
		{"suspended its sessions", w.key, suspended, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, call := range []struct{ method, want string }{{"GetLease", c.get}, {"RenewLease", c.renew}, {"ReleaseLease", c.release}, {"ReleaseLease", c.release}} {
				code, answer := w.lease(c.key, call.method, `{"lease_id": "`+c.id+`"}`)
				if reason, _ := answer["reason"].(string); reason != call.want || (code == 200) != (call.want == "") {
					t.Errorf("%s: %d %v, want %q", call.method, code, answer, call.want)
				}
				if call.method == "RenewLease" && code == 200 && (answer["revived"] == true) != (c.id == suspended) {
					t.Errorf("renewed: %v", answer)
				}
			}
		})
	}
	if code, answer := w.lease(w.key, "RenewLease", `{"lease_id": "`+foreign+`"}`); code != 200 {
		t.Errorf("another project ended it: %d %v", code, answer)
	}
}

// TestLeaseRenewRaces: signs of life beside a release are heard or told that it is over; nothing else.
func TestLeaseRenewRaces(t *testing.T) {
	w := newLeaseWorld(t)
	for range 10 {
		body := `{"lease_id": "` + w.make(`{}`) + `"}`
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				method := "RenewLease"
				if i == 4 {
					method = "ReleaseLease"
				}
				code, answer := w.lease(w.key, method, body)
				if code != 200 && (method != "RenewLease" || answer["reason"] != "conflict") {
					t.Errorf("%s: %d %v", method, code, answer)
				}
			})
		}
		wg.Wait()
		if _, answer := w.lease(w.key, "RenewLease", body); answer["reason"] != "conflict" {
			t.Errorf("after its release: %v", answer)
		}
	}
}
