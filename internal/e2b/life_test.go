package e2b_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestLifeOfASandbox(t *testing.T) {
	needsServer(t)
	made := call(t, 201, "POST", "/sandboxes", `{"templateID":"base","timeout":60,"metadata":{"k/ü":"v"},"secure":false}`)
	id := made.get("sandboxID")
	if made.get("envdVersion") == "" || len(made.get("envdAccessToken")) < 64 || len(made.get("trafficAccessToken")) < 64 || made.get("egressPolicy") != "deny" {
		t.Errorf("%s", made.body)
	}
	one, token := "/sandboxes/"+id, "X-Access-Token: "+made.get("envdAccessToken")
	var d struct {
		State           string
		Metadata        map[string]string
		StartedAt       time.Time
		EndAt           time.Time
		CPUCount        int
		MemoryMB        int
		EnvdAccessToken string
		Lifecycle       struct{ OnTimeout string }
	}
	detail := func() {
		t.Helper()
		if err := json.Unmarshal(call(t, 200, "GET", one, "").body, &d); err != nil {
			t.Fatal(err)
		}
	}
	if detail(); d.State != "running" || d.Metadata["k/ü"] != "v" || d.EndAt.Sub(d.StartedAt) != time.Minute || d.CPUCount < 1 || d.MemoryMB < 1 ||
		d.EnvdAccessToken != made.get("envdAccessToken") || d.Lifecycle.OnTimeout != "kill" {
		t.Errorf("%+v", d)
	}
	// An extension does not shorten; a time-out does.
	call(t, 204, "POST", one+"/refreshes", `{"duration":10}`)
	if detail(); d.EndAt.Sub(d.StartedAt) != time.Minute {
		t.Errorf("a refresh made it shorter: %+v", d)
	}
	call(t, 204, "POST", one+"/timeout", `{"timeout":10}`)
	if detail(); time.Until(d.EndAt) > 10*time.Second {
		t.Errorf("%+v", d)
	}
	call(t, 204, "POST", one+"/refreshes", `{"duration":100}`)
	if detail(); time.Until(d.EndAt) < 80*time.Second {
		t.Errorf("%+v", d)
	}
	call(t, 409, "POST", one+"/resume", `{}`)
	call(t, 204, "POST", one+"/pause", `{"memory":true,"requireHealthyGuest":true}`)
	call(t, 409, "POST", one+"/pause", ``)
	if detail(); d.State != "paused" {
		t.Errorf("%+v", d)
	}
	call(t, 502, "GET", "/health", "", "E2b-Sandbox-Id: "+id, token) // nobody wakes it who does not say so
	call(t, 201, "POST", one+"/connect", `{"timeout":1}`)
	if detail(); d.State != "running" || time.Until(d.EndAt) < 60*time.Second {
		t.Errorf("connecting made it shorter: %+v", d)
	}
	call(t, 200, "POST", "/v2"+one+"/connect", ``)
	call(t, 400, "POST", one+"/connect", ``)
	call(t, 204, "POST", one+"/pause", ``)
	call(t, 201, "POST", one+"/resume", `{"timeout":30}`)
	if detail(); time.Until(d.EndAt) > 30*time.Second {
		t.Errorf("%+v", d)
	}
	call(t, 204, "DELETE", one, "")
	for _, gone := range [][2]string{{"GET", one}, {"DELETE", one}, {"POST", one + "/pause"}, {"POST", "/v2" + one + "/connect"}, {"GET", one + "/metrics"}, {"GET", one + "/logs"}, {"GET", "/v2" + one + "/logs"}, {"PUT", one + "/network"}} {
		call(t, 404, gone[0], gone[1], "")
	}
	call(t, 404, "POST", one+"/timeout", `{"timeout":1}`)
}

func TestTimeouts(t *testing.T) {
	needsServer(t)
	killed := sandbox(t, `,"timeout":1`)
	paused := sandbox(t, `,"timeout":1,"autoPause":true,"autoResume":{"enabled":true}`)
	kept := sandbox(t, `,"timeout":1`)
	call(t, 204, "POST", "/sandboxes/"+kept+"/timeout", `{"timeout":300}`)
	eventually(t, "both have timed out", func() bool {
		l := call(t, 200, "GET", "/v2/sandboxes", "").ids(t)
		return !strings.Contains(l, killed) && strings.Contains(l, paused+" paused")
	})
	call(t, 200, "GET", "/sandboxes/"+kept, "")
	call(t, 204, "POST", "/sandboxes/"+kept+"/timeout", `{"timeout":0}`)
	eventually(t, "no time left means at once", func() bool {
		return !strings.Contains(call(t, 200, "GET", "/sandboxes", "").ids(t), kept)
	})
	// A sandbox that resumes by itself does, and lives as long as at first.
	call(t, 204, "GET", "/health", "", "E2b-Sandbox-Id: "+paused, "X-Access-Token: "+call(t, 200, "GET", "/sandboxes/"+paused, "").get("envdAccessToken"))
	eventually(t, "it is paused again", func() bool {
		return call(t, 200, "GET", "/sandboxes/"+paused, "").get("state") == "paused"
	})
}

func TestList(t *testing.T) {
	needsServer(t)
	var ids []string
	for _, n := range []string{"1", "2", "3"} {
		ids = append(ids, sandbox(t, `,"metadata":{"list":"`+t.Name()+`","n o":"`+n+`"}`))
	}
	call(t, 204, "POST", "/sandboxes/"+ids[1]+"/pause", "")
	mine := "/v2/sandboxes?metadata=list%3D" + t.Name()
	for query, want := range map[string]string{
		"":                                   ids[2] + " running," + ids[1] + " paused," + ids[0] + " running",
		"&order=asc&state=running":           ids[0] + " running," + ids[2] + " running",
		"&state=paused":                      ids[1] + " paused",
		"%26n%252520o%3D3":                   ids[2] + " running",
		"&template=base&limit=1":             ids[2] + " running",
		"&template=other":                    "",
		"&startedAfter=2100-01-01T00:00:00Z": "",
		"&startedAfter=2020-01-01T00:00:00%2B02:00&limit=100": ids[2] + " running," + ids[1] + " paused," + ids[0] + " running",
	} {
		if got := call(t, 200, "GET", mine+query, "").ids(t); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if got := call(t, 200, "GET", "/sandboxes?metadata=list%3D"+t.Name(), "").ids(t); got != ids[2]+" running,"+ids[0]+" running" {
		t.Errorf("the older call lists what runs: %s", got)
	}
	var seen []string
	next := ""
	for {
		a := call(t, 200, "GET", mine+"&limit=2&nextToken="+next, "")
		seen = append(seen, a.ids(t))
		if next = a.header.Get("X-Next-Token"); next == "" {
			break
		}
	}
	if len(seen) != 2 || strings.Join(seen, ",") != ids[2]+" running,"+ids[1]+" paused,"+ids[0]+" running" {
		t.Errorf("pages: %q", seen)
	}
	if a := call(t, 200, "GET", mine+"&limit=3", ""); a.header.Get("X-Next-Token") != "" {
		t.Error("a page after the last")
	}
}

// TestOthersSandboxes: a key opens one project, and sessions that were made otherwise are no sandboxes.
func TestOthersSandboxes(t *testing.T) {
	needsServer(t)
	c, err := dsec.New(dsec.Options{URL: server.URL(), APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	native, err := c.Create(ctx, dsec.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer native.Stop(ctx, "end of the test")
	made, err := c.Keys.CreateKey(ctx, &dsecv1.CreateKeyRequest{Project: "other", Name: "e2b"})
	if err != nil {
		t.Fatal(err)
	}
	id := sandbox(t, "")
	for _, c := range []struct{ who, id string }{{key, native.ID()}, {made.GetSecret(), id}} {
		header := "X-API-KEY: " + c.who
		call(t, 404, "GET", "/sandboxes/"+c.id, "", header)
		call(t, 404, "DELETE", "/sandboxes/"+c.id, "", header)
		call(t, 404, "POST", "/sandboxes/"+c.id+"/timeout", `{"timeout":1}`, header)
		if l := call(t, 200, "GET", "/v2/sandboxes", "", header).ids(t); strings.Contains(l, c.id) {
			t.Errorf("listed: %s", l)
		}
	}
	call(t, 401, "GET", "/health", "", "E2b-Sandbox-Id: "+native.ID())
	call(t, 401, "GET", "/v2/sandboxes", "", "X-API-KEY: e2b_00")
	call(t, 200, "GET", "/v2/sandboxes", "", "X-API-KEY: ", "Authorization: Bearer "+key)
}

func TestIdempotencyKey(t *testing.T) {
	needsServer(t)
	const body = `{"templateID":"base","timeout":30,"metadata":{"a":"b"}}`
	once := "Idempotency-Key: " + strings.ToLower(rand.Text()) // another run's key stands for what has ended
	a := call(t, 201, "POST", "/v2/sandboxes", body, once)
	if b := call(t, 201, "POST", "/v2/sandboxes", body, once); a.get("sandboxID") != b.get("sandboxID") {
		t.Errorf("%s, then %s", a.body, b.body)
	}
	call(t, 409, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":31}`, once)
	call(t, 400, "POST", "/v2/sandboxes", body, "Idempotency-Key: Not One")
	call(t, 204, "DELETE", "/sandboxes/"+a.get("sandboxID"), "")
	call(t, 409, "POST", "/v2/sandboxes", body, once)
}

// TestRefusals: what is not there is refused by name, with a client's error.
func TestRefusals(t *testing.T) {
	needsServer(t)
	id := sandbox(t, "")
	one := "/sandboxes/" + id
	for _, c := range []struct {
		status             int
		method, path, body string
		says               string
	}{
		{400, "POST", one + "/fork", `{"count":2}`, "fork"}, {400, "POST", one + "/snapshots", `{}`, "snapshots"}, {400, "GET", "/snapshots", "", "snapshots"},
		{400, "POST", "/volumes", `{"name":"v"}`, "volumes"}, {400, "GET", "/volumes/x", "", "volumes"}, {400, "GET", "/secrets", "", "secrets"}, {400, "GET", "/teams", "", "teams"},
		{400, "POST", one + "/pause", `{"memory":false}`, "memory"}, {400, "POST", "/v2" + one + "/connect", `{"memory":false}`, "memory"},
		{400, "PUT", one + "/network", `{"allowOut":["not a name"],"denyOut":["0.0.0.0/0"]}`, "allowed_domains"}, {400, "PUT", one + "/network", `{"novel":{"a":1}}`, "novel"},
		{400, "PUT", one + "/network", `{"dnsServers":["1.1.1.1"]}`, "dnsServers"},
		{400, "GET", one + "/metrics?novel=1", "", "novel"}, {400, "GET", one + "/logs?limit=x", "", "limit"}, {400, "POST", one + "/timeout", `{}`, "timeout"},
		{400, "POST", one + "/timeout", `{"timeout":-5}`, "timeout"}, {413, "POST", "/v2/sandboxes", `{"templateID":"` + strings.Repeat("x", 1<<20) + `"}`, "request body"},
		{404, "GET", "/sandboxes/nobody", "", "nobody"}, {404, "GET", one + "/novel", "", "/novel"}, {404, "POST", "/v2/sandboxes", `{"templateID":"no-such-template"}`, "no-such-template"},
	} {
		a := call(t, c.status, c.method, c.path, c.body)
		if !strings.Contains(a.get("message"), c.says) {
			t.Errorf("%s %s %s: the answer does not name %s: %s", c.method, c.path, c.body, c.says, a.body)
		}
	}
	for _, same := range []string{`{}`, `{"allow_internet_access":false}`, `{"denyOut":["0.0.0.0/0"]}`, `{"allow_internet_access":true,"allowOut":[]}`} {
		call(t, 204, "PUT", one+"/network", same) // it has that policy
	}
}

// TestNetworkUpdate: an update is in force when it is answered, and replaces everything.
func TestNetworkUpdate(t *testing.T) {
	needsServer(t)
	id := sandbox(t, "")
	one := "/sandboxes/" + id
	call(t, 204, "PUT", one+"/network", `{"allowOut":["192.0.2.7","*.files.test"],"denyOut":["0.0.0.0/0"]}`)
	a := call(t, 200, "GET", one, "")
	if !strings.Contains(string(a.body), `"egressPolicy":"whitelist"`) || !strings.Contains(string(a.body), "192.0.2.7") || !strings.Contains(string(a.body), "*.files.test") {
		t.Errorf("after the update: %s", a.body)
	}
	call(t, 204, "PUT", one+"/network", `{}`)
	if a := call(t, 200, "GET", one, ""); !strings.Contains(string(a.body), `"egressPolicy":"deny"`) || strings.Contains(string(a.body), "192.0.2.7") {
		t.Errorf("cleared: %s", a.body)
	}
}

func TestFigures(t *testing.T) {
	needsServer(t)
	id := sandbox(t, "")
	var m []struct {
		TimestampUnix, MemTotal, MemUsed, DiskTotal int64
		CPUCount                                    int
	}
	if err := json.Unmarshal(call(t, 200, "GET", "/sandboxes/"+id+"/metrics", "").body, &m); err != nil || len(m) != 1 || m[0].MemTotal <= m[0].MemUsed || m[0].DiskTotal == 0 || m[0].CPUCount < 1 {
		t.Errorf("%+v %v", m, err)
	}
	if a := call(t, 200, "GET", "/sandboxes/"+id+"/metrics?start=1700000000000&end=4100000000000", ""); len(a.body) < 10 {
		t.Errorf("a time in milliseconds: %s", a.body)
	}
	if a := call(t, 200, "GET", "/sandboxes/"+id+"/metrics?start=1&end=2", ""); string(a.body) != "[]\n" {
		t.Errorf("figures of long ago: %s", a.body)
	}
	if a := call(t, 200, "GET", "/sandboxes/metrics?sandbox_ids="+id+",nobody", ""); !strings.Contains(string(a.body), id) || strings.Contains(string(a.body), "nobody") {
		t.Errorf("%s", a.body)
	}
	for _, p := range []string{"/sandboxes/" + id + "/logs?limit=5", "/v2/sandboxes/" + id + "/logs?direction=backward&level=info&search=started"} {
		if a := call(t, 200, "GET", p, ""); !strings.Contains(string(a.body), "sandbox started") {
			t.Errorf("%s: %s", p, a.body)
		}
	}
	call(t, 200, "GET", "/health", "", "X-API-KEY: ")
	call(t, 400, "GET", "/volumecontent/v/file", "", "X-API-KEY: ", "Authorization: Bearer of-a-volume")
}

// TestRestart: a killed server keeps sandboxes, their tokens and the ends that were promised.
func TestRestart(t *testing.T) {
	needsServer(t)
	id := sandbox(t, `,"timeout":2`)
	token := call(t, 200, "GET", "/sandboxes/"+id, "").get("envdAccessToken")
	call(t, 204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":300}`)
	short := sandbox(t, `,"timeout":1`)
	server.Kill()
	time.Sleep(2 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if a := call(t, 200, "GET", "/sandboxes/"+id, ""); a.get("state") != "running" || a.get("envdAccessToken") != token {
		t.Errorf("%s", a.body)
	}
	eventually(t, "what timed out meanwhile has ended", func() bool {
		return !strings.Contains(call(t, 200, "GET", "/v2/sandboxes", "").ids(t), short)
	})
}
