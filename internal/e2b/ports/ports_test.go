package ports

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialer is a guest whose box is this machine.
type dialer struct{ guestclient.API }

func (dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, errdefs.Userf(errdefs.Unavailable, "address "+addr, "check that the program listens there", "cannot connect in the box")
	}
	return c, nil
}

// bench serves a port of this machine as one of a box.
func bench(t *testing.T, port int, change func(*Target)) *httptest.Server {
	t.Helper()
	target := Target{Sandbox: "box", Port: port, Guest: func(context.Context) (guestclient.API, func(), error) { return dialer{}, func() {}, nil }}
	if change != nil {
		change(&target)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, target) }))
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	return s
}

// inside is a server in the box, and its port.
func inside(t *testing.T, h http.HandlerFunc) int {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

func get(t *testing.T, s *httptest.Server, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

// TestPassesOn: the box gets the request as it is, but for what opens something here.
func TestPassesOn(t *testing.T) {
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s\n", r.Method, r.RequestURI, r.Host)
		r.Header.Write(w)
	})
	s := bench(t, port, nil)
	_, got := get(t, s, "/a%2Fb/../c?x=1;y=%zz", "X-Api-Key", "e2b_key", "Authorization", "Bearer e2b_key", "X-Access-Token", "secret",
		"E2b-Traffic-Access-Token", "secret", "E2b-Sandbox-Id", "box", "E2b-Sandbox-Port", "1", "Dsec-Project", "p", "X-Own", "kept", "Cookie", "c=1")
	if !strings.HasPrefix(got, "GET /a%2Fb/../c?x=1;y=%zz "+strings.TrimPrefix(s.URL, "http://")+"\n") {
		t.Errorf("%q", got)
	}
	for _, secret := range []string{"e2b_key", "secret", "E2b-", "Dsec-", "Authorization", "X-Forwarded"} {
		if strings.Contains(got, secret) {
			t.Errorf("the box got %s in %q", secret, got)
		}
	}
	if !strings.Contains(got, "X-Own: kept") || !strings.Contains(got, "Cookie: c=1") {
		t.Errorf("%q", got)
	}
	for _, own := range []string{"Bearer own-token", "Basic dXNlcjpwdw=="} {
		if _, got = get(t, s, "/", "Authorization", own); !strings.Contains(got, own) {
			t.Errorf("the server's own authorization is lost: %q", got)
		}
	}
	if _, got = get(t, s, "/", "Authorization", "e2b_bare"); strings.Contains(got, "e2b_bare") {
		t.Errorf("%q", got)
	}
}

// TestStreams: what the box sends is there at once, and an upgrade carries bytes both ways.
func TestStreams(t *testing.T) {
	more := make(chan struct{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintln(w, "first")
			w.(http.Flusher).Flush()
			<-more
			fmt.Fprintln(w, "second")
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(c, rw)
	})
	s := bench(t, port, nil)
	res, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" || err != nil {
		t.Fatalf("%q %v", line, err)
	}
	close(more)
	if line, err := lines.ReadString('\n'); line != "second\n" || err != nil {
		t.Fatalf("%q %v", line, err)
	}
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	up, err := http.ReadResponse(r, nil)
	if err != nil || up.StatusCode != 101 {
		t.Fatalf("%v %v", up, err)
	}
	fmt.Fprint(c, "ping\n")
	if line, err := r.ReadString('\n'); line != "ping\n" || err != nil {
		t.Fatalf("%q %v", line, err)
	}
}

// TestNothingAnswers: SDKs know by the words what is wrong.
func TestNothingAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	l.Close()
	rude := inside(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := http.NewResponseController(w).Hijack()
		c.Close()
	})
	wordy := inside(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 2*maxAnswerHeader))
	})
	fails := func(e *errdefs.Error) func(*Target) {
		return func(t *Target) {
			t.Guest = func(context.Context) (guestclient.API, func(), error) { return nil, nil, e }
		}
	}
	for name, tc := range map[string]struct {
		port   int
		change func(*Target)
		status int
		words  string
	}{
		"nothing listens": {closed, nil, 502, "port is not open"},
		"no answer":       {rude, nil, 502, "port " + strconv.Itoa(rude)},
		"endless header":  {wordy, nil, 502, "port " + strconv.Itoa(wordy)},
		"paused":          {closed, fails(errdefs.Userf(errdefs.Conflict, "s", "", "it is paused")), 502, "was not found"},
		"gone":            {closed, fails(errdefs.Userf(errdefs.BoxGone, "s", "", "it ended")), 502, "was not found"},
		"stopping":        {closed, fails(errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "server", "it is stopping")), 503, "stopping"},
	} {
		res, text := get(t, bench(t, tc.port, tc.change), "/")
		var body struct {
			SandboxID string
			Message   string
			Port      int
			Code      int
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil || res.StatusCode != tc.status || body.Code != tc.status ||
			!strings.Contains(body.Message, tc.words) || body.SandboxID != "box" || body.Port != tc.port {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
}

func FuzzHostOnly(f *testing.F) {
	f.Add("a=1; Domain=x; Path=/")
	f.Add(";domain")
	f.Fuzz(func(t *testing.T, cookie string) {
		for i, part := range strings.Split(hostOnly(cookie), ";") {
			name, _, _ := strings.Cut(part, "=")
			if i > 0 && strings.EqualFold(strings.TrimSpace(name), "domain") {
				t.Errorf("%q still names a domain", cookie)
			}
		}
		_ = isKey(cookie)
	})
}

// A server may begin its answer before it has read the request to its end: neither is broken off.
func TestAnswerBeforeTheEndOfTheRequest(t *testing.T) {
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.EnableFullDuplex(), send(w, "first ")); err != nil {
			t.Error(err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("the request: %v", err)
		}
		_ = send(w, string(body))
	})
	s := bench(t, port, nil)
	body, more := io.Pipe()
	go func() { _, _ = io.WriteString(more, "then ") }()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/", body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = int64(len("then this"))
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	begin := make([]byte, len("first "))
	if _, err := io.ReadFull(res.Body, begin); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(more, "this")
		more.Close()
	}()
	rest, err := io.ReadAll(res.Body)
	if got := string(begin) + string(rest); err != nil || got != "first then this" {
		t.Errorf("%q, %v", got, err)
	}
}

func send(w http.ResponseWriter, s string) error {
	if _, err := io.WriteString(w, s); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
