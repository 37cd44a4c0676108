package envd

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/gen/filesystem/filesystemconnect"
	"github.com/dsec-platform/dsec/gen/process/processconnect"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guest"
	"github.com/dsec-platform/dsec/internal/guest/files"
	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

func TestMain(m *testing.M) {
	unix.Umask(0) // as a box's file worker has it
	goleak.VerifyTestMain(m)
}

const testToken = "the token of this sandbox"

// bench is a handler with one sandbox: a real guest, in this process and without a box.
type bench struct {
	*httptest.Server
	h       *Handler
	sandbox Sandbox
	user    string // of this process
	home    string
	guest   func(context.Context) (guestclient.API, func(), error)
	calls   *connect.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t)
	b := &bench{user: me.Username, home: me.HomeDir}
	b.guest = func(context.Context) (guestclient.API, func(), error) { return g, func() {}, nil }
	b.sandbox = Sandbox{ID: "sandbox", Token: testToken, Env: []string{"E2B_SANDBOX=true", "X=0"},
		Guest: func(ctx context.Context) (guestclient.API, func(), error) { return b.guest(ctx) }}
	b.h = New(Config{Sandbox: func(context.Context) Sandbox { return b.sandbox }})
	b.Server = httptest.NewServer(b.h)
	b.calls = connect.NewClient(connecthttp.NewTransport(b.Client(), b.URL, connecthttp.WithCodecs(newCodec())))
	t.Cleanup(func() {
		b.Close()
		b.h.Close()
		b.Client().CloseIdleConnections()
	})
	return b
}

func newGuest(t *testing.T) *guestclient.Client {
	t.Helper()
	w := files.New()
	srv := guest.NewServer(guest.Options{
		Settings: func() *setup.Settings { return &setup.Settings{AgentCgroup: -1, AgentMemory: -1, AgentPids: -1} },
		Files: func(rw io.ReadWriteCloser) {
			if c, err := mux.NewConn(rw, mux.Config{Accept: w.Serve}); err == nil {
				_ = c.Serve()
			}
		},
	})
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = srv.Serve(os.NewFile(uintptr(fds[1]), "control"))
		close(done)
	}()
	c, err := guestclient.New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-done
		<-c.Done()
		srv.Close()
		w.Close()
	})
	return c
}

// call is the context of an RPC with the token, and as headers say.
func (b *bench) call(t *testing.T, headers ...string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set(headerToken, testToken)
	for i := 0; i < len(headers); i += 2 {
		info.RequestHeader().Set(headers[i], headers[i+1])
	}
	return ctx
}

func basic(user string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":")) }

func (b *bench) processes() processconnect.ProcessClient {
	return processconnect.NewProcessClient(b.calls)
}

func (b *bench) files() filesystemconnect.FilesystemClient {
	return filesystemconnect.NewFilesystemClient(b.calls)
}

// do sends a plain request with the token.
func (b *bench) do(t *testing.T, method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(headerToken, testToken)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	res, err := b.Client().Transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want connect.Code) {
	t.Helper()
	if got := connect.CodeOf(err); err == nil || got != want {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acting for other users needs root")
	}
}

// gone is a guest that cannot be reached, for a reason.
func unreachable(reason errdefs.Reason) func(context.Context) (guestclient.API, func(), error) {
	return func(context.Context) (guestclient.API, func(), error) {
		return nil, nil, errdefs.Userf(reason, "session x", "resume it", "it is suspended")
	}
}
