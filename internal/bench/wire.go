package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
)

// wire is a kept connection on which one worker calls by itself, without a client library: a request is one write, the
// answer is read by who asked. What a call takes beyond it is the client's.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	key  string
}

func dialWire(ctx context.Context, addr, key string) (*wire, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wire{conn, bufio.NewReader(conn), key}, nil
}

// run1 runs `true` in a session and checks that it ended well.
func (w *wire) run1(ctx context.Context, session string) error {
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(time.Now()) })
	defer stop()
	body, err := proto.Marshal(&dsecv1.RunRequest{SessionId: session, Command: &dsecv1.Command{Argv: trueCmd.Argv}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.conn.RemoteAddr().String()+dsecv1connect.ExecServiceRunProcedure, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/proto")
	req.Header.Set("Authorization", "Bearer "+w.key)
	var whole bytes.Buffer
	if err := req.Write(&whole); err != nil {
		return err
	}
	if _, err := w.conn.Write(whole.Bytes()); err != nil {
		return err
	}
	res, err := http.ReadResponse(w.in, req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status + ": " + string(answer))
	}
	var r dsecv1.RunResponse
	if err := proto.Unmarshal(answer, &r); err != nil {
		return err
	}
	return endedWell(r.GetResult())
}
