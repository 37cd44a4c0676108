package api_test

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestJSONByCurl(t *testing.T) {
	w := newWorld(t)
	code, h, body := w.curl("POST", "/dsec.v1.SessionService/Create", `{"session":{"labels":{"a":"b"},"spec":{"mem_limit":67108864,"fs":{"rootfs":{"readonly":false}}}}}`)
	if code != 200 {
		t.Fatal(code, body)
	}
	if h.Get("X-Request-Id") == "" {
		t.Error("no request id")
	}
	var created struct {
		Results []struct {
			ID      string
			Session struct {
				Phase string
				Spec  map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &created); err != nil || len(created.Results) != 1 {
		t.Fatal(err, body)
	}
	s := created.Results[0]
	if s.Session.Phase != "RUNNING" || s.Session.Spec["mem_limit"] != "67108864" || s.Session.Spec["pid_limit"] != 77.0 {
		t.Errorf("session %+v: want the override, the template's value, the names of spec files", s)
	}
	code, _, body = w.curl("POST", "/dsec.v1.ExecService/Run", `{"session_id":"`+s.ID+`","text":true,"command":{"argv":["sh","-c","echo hi; echo no >&2; exit 3"]}}`)
	if code != 200 || !strings.Contains(strings.ReplaceAll(body, " ", ""), `"exit_code":3`) || !strings.Contains(body, `hi\n`) || !strings.Contains(body, `no\n`) {
		t.Error(code, body)
	}
	// lowerCamelCase is read too: it is what generated JSON clients write.
	if code, _, body = w.curl("POST", "/dsec.v1.SessionService/Get", `{"sessionId":"`+s.ID+`"}`); code != 200 {
		t.Error(code, body)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	id := w.session().ID()
	for _, tt := range []struct {
		name, call, body string
		status           int
		reason, object   string
	}{
		{"unknown field", "SessionService/Get", `{"session_id":"` + id + `","colour":"red"}`, 400, "invalid_argument", "field colour"},
		{"unknown nested field", "SessionService/Create", `{"session":{"spec":{"fs":{"writable":[]}}}}`, 400, "invalid_argument", "field writable"},
		{"broken JSON", "SessionService/Get", `{"session_id":`, 400, "invalid_argument", "request body"},
		{"wrong type", "SessionService/Get", `{"session_id":7}`, 400, "invalid_argument", "request body"},
		{"no such session", "SessionService/Get", `{"session_id":"s0000000000000000000000000"}`, 404, "not_found", "session s0000000000000000000000000"},
		{"bad session id", "SessionService/Get", `{"session_id":"../../etc"}`, 400, "invalid_argument", "field session_id"},
		{"no session id", "SessionService/Get", `{}`, 400, "invalid_argument", "field session_id"},
		{"count too large", "SessionService/Create", `{"session":{"count":40000}}`, 400, "invalid_argument", "field session.count"},
		{"negative count", "SessionService/Create", `{"session":{"count":-1}}`, 400, "invalid_argument", "field session.count"},
		{"no such template", "SessionService/Create", `{"session":{"template":"nix"}}`, 404, "not_found", "template nix"},
		{"runtime to come", "SessionService/Create", `{"session":{"spec":{"runtime":"gvisor"}}}`, 501, "unsupported", "field runtime"},
		{"yaml field", "SessionService/Create", `{"session":{"spec_yaml":"sandbox_spec:\n  mem_limt: 1Gi\n"}}`, 400, "invalid_argument", "spec_yaml:2:3: sandbox_spec.mem_limt"},
		{"bad label", "SessionService/Create", `{"session":{"labels":{"a b":"c"}}}`, 400, "invalid_argument", "field session.labels"},
		{"bad variable", "SessionService/Create", `{"session":{"env":{"A=B":"c"}}}`, 400, "invalid_argument", "field session.env"},
		{"secret in env too", "SessionService/Create", `{"session":{"env":{"A":"b"},"secrets":{"A":"c"}}}`, 400, "invalid_argument", "field session.secrets"},
		{"code_dir alone", "SessionService/Create", `{"session":{"code_dir":"/x"}}`, 400, "invalid_argument", "field session.code_dir"},
		{"control character in job", "SessionService/Create", `{"session":{"job":"a\u0007"}}`, 400, "invalid_argument", "field session.job"},
		{"nothing to run", "ExecService/Run", `{"session_id":"` + id + `","command":{}}`, 400, "invalid_argument", "field command"},
		{"argv and script", "ExecService/Run", `{"session_id":"` + id + `","command":{"argv":["a"],"script":"b"}}`, 400, "invalid_argument", "field command"},
		{"NUL in argv", "ExecService/Run", `{"session_id":"` + id + `","command":{"argv":["a","b\u0000"]}}`, 400, "invalid_argument", "field command.argv[1]"},
		{"bad op id", "ExecService/Run", `{"session_id":"` + id + `","command":{"op_id":"a/b","argv":["a"]}}`, 400, "invalid_argument", "field op_id"},
		{"negative timeout", "ExecService/Run", `{"session_id":"` + id + `","command":{"argv":["a"],"timeout_ms":-1}}`, 400, "invalid_argument", "field command.timeout_ms"},
		{"huge output", "ExecService/Run", `{"session_id":"` + id + `","command":{"argv":["a"],"max_output":99999999999}}`, 400, "invalid_argument", "field command.max_output"},
		{"stdin twice", "ExecService/Run", `{"session_id":"` + id + `","command":{"argv":["a"],"stdin":"YQ==","stdin_stream":true}}`, 400, "invalid_argument", "field command.stdin"},
		{"huge window", "ExecService/Run", `{"session_id":"` + id + `","command":{"argv":["a"],"pty":{"rows":70000}}}`, 400, "invalid_argument", "field command.pty"},
		{"no such program", "ExecService/Run", `{"session_id":"` + id + `","command":{"argv":["/nope"]}}`, 404, "not_found", "program /nope"},
		{"no such op", "ExecService/GetOp", `{"session_id":"` + id + `","op_id":"nope"}`, 404, "op_unknown", "op nope"},
		{"bad signal", "ExecService/Signal", `{"session_id":"` + id + `","op_id":"x","signal":"SIGNOPE"}`, 400, "invalid_argument", "field signal"},
		{"no path", "FileService/Stat", `{"session_id":"` + id + `"}`, 400, "invalid_argument", "field path"},
		{"path twice", "FileService/Stat", `{"session_id":"` + id + `","path":"a","path_bytes":"YQ=="}`, 400, "invalid_argument", "field path"},
		{"bad mode", "FileService/MakeDir", `{"session_id":"` + id + `","path":"a","mode":65536}`, 400, "invalid_argument", "field mode"},
		{"empty chmod", "FileService/Chmod", `{"session_id":"` + id + `","path":"a"}`, 400, "invalid_argument", "field mode"},
		{"no selector", "SessionService/Stop", `{}`, 400, "invalid_argument", "field selector"},
		{"two selectors", "SessionService/Stop", `{"selector":{"all":true,"job":"x"}}`, 400, "invalid_argument", "field selector"},
		{"bad phase", "SessionService/List", `{"phases":["RUNING"]}`, 400, "invalid_argument", "field phases[0]"},
		{"bad page size", "SessionService/List", `{"page_size":5000}`, 400, "invalid_argument", "field page_size"},
		{"bad project", "KeyService/CreateKey", `{"project":"A_B"}`, 400, "invalid_argument", "field project"},
		{"no such method", "SessionService/Nope", `{}`, 501, "unsupported", "call /dsec.v1.SessionService/Nope"},
		{"no node", "NodeService/GetStats", `{}`, 501, "unsupported", "node"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, _, body := w.curl("POST", "/dsec.v1."+tt.call, tt.body)
			if code != tt.status {
				t.Fatalf("status %d, want %d: %s", code, tt.status, body)
			}
			d := detail(t, body)
			if d["reason"] != tt.reason || d["object"] != tt.object {
				t.Errorf("reason %v of %v, want %v of %v", d["reason"], d["object"], tt.reason, tt.object)
			}
			if d["class"] == "infrastructure" || d["remedy"] == nil || d["message"] == nil {
				t.Errorf("class %v, remedy %v, message %v", d["class"], d["remedy"], d["message"])
			}
		})
	}
	if n := w.ctl.creates; n != 1 {
		t.Errorf("%d refused creates reached the control plane", n-1)
	}
}

func TestTooLarge(t *testing.T) {
	w := newWorld(t)
	code, _, body := w.curl("POST", "/dsec.v1.SessionService/Get", `{"session_id":"`+strings.Repeat("a", 2<<20)+`"}`)
	if code != 429 || detail(t, body)["reason"] != "too_large" || detail(t, body)["class"] != "limit" {
		t.Error(code, body)
	}
}

// FuzzJSON looks for a body that makes the server fail instead of refuse.
func FuzzJSON(f *testing.F) {
	f.Add("SessionService/Create", `{"session":{"count":2,"spec":{"fs":{"mounts":[{"source":"/a"}]}}}}`)
	f.Add("ExecService/Signal", `{"session_id":"s0000000000000000000000000","op_id":"x","signal":"9"}`)
	f.Add("FileService/Move", `{"from":"\ud800","to":"b"}`)
	f.Add("TemplateService/ImportTemplate", `{"name":"x","image":"y"}`)
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, call, body string) {
		if strings.ContainsFunc(call, func(r rune) bool { return r <= ' ' || r > '~' || r == '%' || r == '?' || r == '#' }) {
			return
		}
		w := *w
		w.t = t
		if code, _, answer := w.curl("POST", "/dsec.v1."+call, body); code == 500 || code == 503 {
			t.Errorf("%d: %s", code, answer)
		}
	})
}
