package e2b_test

import (
	"strings"
	"testing"
)

// TestStrangersLearnNothing: without a right to it, a sandbox that is there answers as one that is not.
func TestStrangersLearnNothing(t *testing.T) {
	needsServer(t)
	made := call(t, 201, "POST", "/sandboxes", `{"templateID":"base"}`)
	id, token := made.get("sandboxID"), made.get("envdAccessToken")
	foreign := call(t, 201, "POST", "/sandboxes", `{"templateID":"base"}`)
	other := call(t, 201, "POST", "/sandboxes", `{"templateID":"base"}`)
	call(t, 204, "DELETE", "/sandboxes/"+other.get("sandboxID"), "")
	call(t, 204, "DELETE", "/sandboxes/"+foreign.get("sandboxID"), "")
	none := id[:len(id)-4] + "0000"
	for _, c := range []struct{ method, path, port, token string }{
		{"GET", "/health", "49983", ""}, {"GET", "/health", "49983", foreign.get("envdAccessToken")}, {"GET", "/files?path=/etc/passwd", "49983", ""},
		{"GET", "/files?path=/x&signature=v1_x", "49983", ""}, {"POST", "/files?path=/x", "49983", ""}, {"GET", "/nothing", "49983", ""},
		{"POST", "/process.Process/List", "49983", foreign.get("envdAccessToken")}, {"GET", "/", "8000", ""}, {"GET", "/", "8000", foreign.get("envdAccessToken")}, {"GET", "/", "x", ""},
	} {
		said := map[string]bool{}
		for _, sandbox := range []string{id, none, other.get("sandboxID"), "nonsense"} {
			a := ask(t, c.method, c.path, "{}", "E2b-Sandbox-Id: "+sandbox, "E2b-Sandbox-Port: "+c.port, "X-Access-Token: "+c.token, "Content-Type: application/json")
			said[strings.ReplaceAll(string(a.body), sandbox, "ID")] = true
			if a.status == 502 {
				t.Errorf("%v: %s is told to be away", c, sandbox)
			}
		}
		if len(said) != 1 {
			t.Errorf("%v: %d answers: %v", c, len(said), said)
		}
	}
	// With the token it is as the SDKs need it.
	box := []string{"E2b-Sandbox-Id: " + id, "E2b-Sandbox-Port: 49983", "X-Access-Token: " + token}
	call(t, 204, "GET", "/health", "", box...)
	call(t, 204, "DELETE", "/sandboxes/"+id, "")
	if a := call(t, 502, "GET", "/health", "", box...); !strings.Contains(string(a.body), "was not found") {
		t.Errorf("%s", a.body)
	}
	box[1] = "E2b-Sandbox-Port: 8000"
	if a := call(t, 502, "GET", "/", "", box...); !strings.Contains(string(a.body), "was not found") {
		t.Errorf("%s", a.body)
	}
}
