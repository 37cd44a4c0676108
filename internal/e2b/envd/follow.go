package envd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/gen/process"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// follower passes a process's events on: start, data, end, and pings in between.
type follower struct {
	stream guestclient.ExecStream
	pty    bool
	send   func(*process.ProcessEvent) error
	beat   *beat
	begun  func(pid int) // nil, or told the pid before the client is
}

func (p *processes) follow(ctx context.Context, stream guestclient.ExecStream, pty bool, send func(*process.ProcessEvent) error) *follower {
	ping := &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
	return &follower{stream: stream, pty: pty, send: send, beat: newBeat(pingInterval(ctx), func() error { return send(ping) })}
}

// run ends with the process, or detaches when the client goes.
func (f *follower) run(ctx context.Context) error {
	defer f.stream.Close()
	defer context.AfterFunc(ctx, func() { f.stream.Close() })()
	defer f.beat.stop()
	for {
		ev, err := f.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		out, err := f.event(&ev)
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		if err := f.beat.send(func() error { return f.send(out) }); err != nil {
			return err
		}
	}
}

// event is the client's form of the guest's event; nil for one that is not told.
func (f *follower) event(ev *guestproto.ExecEvent) (*process.ProcessEvent, error) {
	switch ev.Kind {
	case guestproto.EventStarted:
		if f.begun != nil {
			f.begun(ev.Pid)
		}
		return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: uint32(ev.Pid)}}}, nil
	case guestproto.EventOutput:
		d := &process.ProcessEvent_DataEvent{}
		data := slices.Clone(ev.Data) // valid until the next event only, and a ping may not wait for this one
		switch {
		case f.pty:
			d.Output = &process.ProcessEvent_DataEvent_Pty{Pty: data}
		case ev.Stream == guestproto.Stderr:
			d.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: data}
		default:
			d.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: data}
		}
		return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}}, nil
	case guestproto.EventGap:
		return nil, errdefs.Limitf(errdefs.RateLimited, "output", "take it faster, or write it into a file", "%d bytes were dropped before they were taken", ev.Dropped)
	case guestproto.EventExit:
		return ended(ev.Result)
	}
	return nil, nil
}

// ended is how a process ended. Its deadline is the call's, so its passing is the call's error.
func ended(r *guestproto.Result) (*process.ProcessEvent, error) {
	switch {
	case r.Error != nil:
		return nil, startError(fromGuest(r.Error))
	case r.TimedOut:
		return nil, errdefs.Userf(errdefs.TimedOut, "process", "give it more time", "its time was over, and it was killed")
	}
	end := &process.ProcessEvent_EndEvent{ExitCode: int32(r.ExitCode), Exited: r.Signal == "", Status: fmt.Sprintf("exit status %d", r.ExitCode)}
	if r.Signal != "" {
		end.Status = "signal: " + signalText(r.Signal)
	}
	if r.ExitCode != 0 {
		why := end.Status
		if r.OOM {
			why += " (out of memory)"
		}
		end.Error = &why
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}, nil
}

// signalText is what a system calls a signal in words: "killed" for SIGKILL.
func signalText(name string) string {
	if n := unix.SignalNum(name); n != 0 {
		return n.String()
	}
	return strings.ToLower(name)
}
