package api

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// guestError types a guest's error. A guest can never say infrastructure.
func guestError(w *guestproto.WireError) *errdefs.Error {
	if w == nil {
		return nil
	}
	e := &errdefs.Error{Class: errdefs.Class(w.Class), Reason: errdefs.Reason(w.Reason), Scope: errdefs.ScopeBox, Object: w.Object, Message: w.Message, Remedy: w.Remedy}
	if e.Class != errdefs.User && e.Class != errdefs.Limit {
		e.Class = errdefs.Policy
	}
	if _, known := codes[e.Reason]; !known {
		e.Reason = errdefs.BoxTampered
		if e.Class == errdefs.User {
			e.Reason = errdefs.InvalidArgument
		}
	}
	return e
}

func wireResult(r *guestproto.Result, text bool) *dsecv1.Result {
	if r == nil {
		return nil
	}
	return &dsecv1.Result{
		OpId: r.OpID, ExitCode: int32(r.ExitCode), Signal: r.Signal, TimedOut: r.TimedOut, Oom: r.OOM, Limit: string(r.Limit),
		WallMs: r.WallMs, UserMs: r.UserMs, SysMs: r.SysMs, PeakMemory: r.PeakMemory, ReadBytes: r.ReadBytes, WriteBytes: r.WriteBytes,
		Stdout: wireOutput(&r.Stdout, text), Stderr: wireOutput(&r.Stderr, text), Survivors: int32(r.Survivors), Error: wireError(guestError(r.Error)),
	}
}

func wireOutput(o *guestproto.Output, text bool) *dsecv1.Output {
	w := &dsecv1.Output{Dropped: o.Dropped, Total: o.Total}
	if !text {
		w.Head, w.Tail = o.Head, o.Tail
		return w
	}
	var b strings.Builder
	b.Write(o.Head)
	if o.Dropped > 0 {
		b.WriteString("\n[" + strconv.FormatInt(o.Dropped, 10) + " bytes dropped]\n")
	}
	b.Write(o.Tail)
	w.Text = utf8Text(b.String())
	return w
}

// wireEvent gives nil for an event that this version does not know.
func wireEvent(op string, ev *guestproto.ExecEvent) *dsecv1.ExecEvent {
	switch ev.Kind {
	case guestproto.EventStarted:
		return &dsecv1.ExecEvent{Event: &dsecv1.ExecEvent_Started{Started: &dsecv1.Started{OpId: op, Pid: int32(ev.Pid)}}}
	case guestproto.EventOutput:
		return &dsecv1.ExecEvent{Event: &dsecv1.ExecEvent_Output{Output: &dsecv1.Chunk{Stream: dsecv1.Stream(ev.Stream), Offset: ev.Offset, Data: ev.Data}}}
	case guestproto.EventGap:
		return &dsecv1.ExecEvent{Event: &dsecv1.ExecEvent_Gap{Gap: &dsecv1.Gap{Stream: dsecv1.Stream(ev.Stream), Offset: ev.Offset, Dropped: ev.Dropped}}}
	case guestproto.EventExit:
		r := wireResult(ev.Result, false)
		if r == nil {
			r = &dsecv1.Result{}
		}
		if r.OpId == "" {
			r.OpId = op
		}
		return &dsecv1.ExecEvent{Event: &dsecv1.ExecEvent_Exit{Exit: r}}
	}
	return nil
}

func wireOperation(o *guestproto.OpInfo, text bool) *dsecv1.Operation {
	w := &dsecv1.Operation{
		OpId: o.OpID, Pid: int32(o.Pid), ShellSession: o.ShellSession, User: utf8Text(o.User), Cwd: utf8Text(o.Cwd), Pty: o.PTY,
		Running: o.Running, Background: o.Background, Survivors: int32(o.Survivors), Result: wireResult(o.Result, text),
	}
	for _, a := range o.Argv {
		w.Argv = append(w.Argv, utf8Text(a))
	}
	if o.StartedUnix != 0 {
		w.Started = timestamppb.New(time.Unix(0, o.StartedUnix))
	}
	return w
}
