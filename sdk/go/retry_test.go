package dsec_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"go.uber.org/goleak"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flaky is a server that breaks the connection of its first calls after it read them.
type flaky struct {
	dsecv1connect.UnimplementedExecServiceHandler
	dsecv1connect.UnimplementedSessionServiceHandler

	mu      sync.Mutex
	breaks  int
	calls   int
	ops     map[string]int
	refused error
}

// count tells whether this call is answered.
func (f *flaky) count(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.ops[op]++
	if f.calls <= f.breaks {
		if f.refused != nil {
			return f.refused
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}

// seen gives the number of calls since it was last asked.
func (f *flaky) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.calls
	f.calls = 0
	return n
}

func (f *flaky) Run(_ context.Context, q *dsecv1.RunRequest) (*dsecv1.RunResponse, error) {
	if err := f.count(q.GetCommand().GetOpId()); err != nil {
		return nil, err
	}
	return &dsecv1.RunResponse{Result: &dsecv1.Result{OpId: q.GetCommand().GetOpId()}}, nil
}

func (f *flaky) Create(_ context.Context, q *dsecv1.CreateRequest) (*dsecv1.CreateResponse, error) {
	if err := f.count(q.GetIdempotencyKey()); err != nil {
		return nil, err
	}
	return &dsecv1.CreateResponse{Results: []*dsecv1.SessionResult{{Id: "s1"}}}, nil
}

func serve(t *testing.T, f *flaky, addr string) (url string, stop func()) {
	t.Helper()
	f.ops = map[string]int{}
	s := connect.NewServer()
	dsecv1connect.RegisterExecServiceHandler(s, f)
	dsecv1connect.RegisterSessionServiceHandler(s, f)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, s)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: mux}
	go srv.Serve(ln)
	stop = func() { srv.Close() }
	t.Cleanup(stop)
	return "http://" + ln.Addr().String(), stop
}

func client(t *testing.T, o dsec.Options) *dsec.Client {
	t.Helper()
	c, err := dsec.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestLostCallsAreRepeatedWhenThatIsSafe(t *testing.T) {
	f := &flaky{breaks: 2}
	url, _ := serve(t, f, "127.0.0.1:0")
	c := client(t, dsec.Options{URL: url, APIKey: "k"})
	if _, err := c.Session("s").Sh(t.Context(), "true"); err != nil {
		t.Fatal(err)
	}
	if n := f.seen(); n != 3 || len(f.ops) != 1 {
		t.Errorf("%d calls with the ids %v", n, f.ops)
	}
	var e *dsec.Error
	if _, err := c.Create(t.Context(), dsec.CreateOptions{}); !errors.As(err, &e) || e.Class != dsec.ClassInfrastructure {
		t.Errorf("a create without a key: %v", err)
	}
	if n := f.seen(); n != 1 {
		t.Errorf("a create without a key was sent %d times", n)
	}
	if _, err := c.Create(t.Context(), dsec.CreateOptions{IdempotencyKey: "k"}); err != nil || f.seen() != 3 {
		t.Error("a create with a key:", err)
	}
}

func TestRepeatingEnds(t *testing.T) {
	f := &flaky{breaks: 1 << 30}
	url, _ := serve(t, f, "127.0.0.1:0")
	start := time.Now()
	_, err := client(t, dsec.Options{URL: url, RetryFor: 200 * time.Millisecond}).Session("s").Sh(t.Context(), "true")
	if d := time.Since(start); !dsec.IsReason(err, "unavailable") || d > 2*time.Second {
		t.Error(err, d)
	}
	f.seen()
	if _, err := client(t, dsec.Options{URL: url, RetryFor: -1}).Session("s").Sh(t.Context(), "true"); err == nil || f.seen() != 1 {
		t.Error("it was not to be repeated:", err)
	}
	f.seen()
	f.mu.Lock()
	f.refused = connect.NewError(connect.CodeInvalidArgument, "no")
	f.mu.Unlock()
	if _, err := client(t, dsec.Options{URL: url}).Session("s").Sh(t.Context(), "true"); err == nil || f.seen() != 1 {
		t.Error("a refusal was repeated:", err)
	}
}

// A server that restarts is waited for, by creates too: nothing reached it.
func TestServerRestart(t *testing.T) {
	url, stop := serve(t, &flaky{}, "127.0.0.1:0")
	c := client(t, dsec.Options{URL: url})
	if _, err := c.Create(t.Context(), dsec.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		time.Sleep(300 * time.Millisecond)
		serve(t, &flaky{}, url[len("http://"):])
	})
	if _, err := c.Session("s").Sh(t.Context(), "true"); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestOptions(t *testing.T) {
	for _, bad := range []string{"ftp://x", "http://", "://", "localhost:8080"} {
		if _, err := dsec.New(dsec.Options{URL: bad}); !dsec.IsReason(err, "invalid_argument") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	t.Setenv("DSEC_URL", "http://127.0.0.1:1")
	c, err := dsec.New(dsec.Options{RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	var e *dsec.Error
	if _, err := c.Session("s").Get(t.Context()); !errors.As(err, &e) || e.Class != dsec.ClassInfrastructure || e.Remedy == "" {
		t.Error(err)
	}
}
