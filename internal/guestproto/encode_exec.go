package guestproto

// EncodeFields is the wire form.
func (r *ExecRequest) EncodeFields(e *Encoder) {
	e.String(1, r.OpID)
	e.Strings(2, r.Argv)
	e.String(3, r.Script)
	e.String(4, r.Shell)
	e.String(5, r.ShellSession)
	e.Strings(6, r.Env)
	e.String(7, r.Cwd)
	e.String(8, r.User)
	e.Uint(9, uint64(r.StdinMode))
	e.Bytes(10, r.Stdin)
	e.Bool(11, r.PTY)
	e.Uint(12, uint64(r.Rows))
	e.Uint(13, uint64(r.Cols))
	e.Int(14, r.TimeoutMs)
	e.Int(15, r.MaxOutput)
	e.Bool(16, r.KillOnOutputLimit)
	e.Bool(17, r.Background)
	e.Bool(18, r.HoldOutput)
	e.String(19, r.Note)
}

// DecodeFields reads the wire form.
func (r *ExecRequest) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			r.OpID = d.String(MaxOpID)
		case 2:
			r.Argv = d.AppendString(r.Argv, MaxArgs, MaxArg)
		case 3:
			r.Script = d.String(MaxFrame)
		case 4:
			r.Shell = d.String(MaxPath)
		case 5:
			r.ShellSession = d.String(MaxName)
		case 6:
			r.Env = d.AppendString(r.Env, MaxEnv, MaxArg)
		case 7:
			r.Cwd = d.String(MaxPath)
		case 8:
			r.User = d.String(MaxName)
		case 9:
			r.StdinMode = StdinMode(d.UintMax(uint64(StdinStream)))
		case 10:
			r.Stdin = d.Bytes(MaxFrame)
		case 11:
			r.PTY = d.Bool()
		case 12:
			r.Rows = uint16(d.UintMax(1<<16 - 1))
		case 13:
			r.Cols = uint16(d.UintMax(1<<16 - 1))
		case 14:
			r.TimeoutMs = d.Int()
		case 15:
			r.MaxOutput = d.Int()
		case 16:
			r.KillOnOutputLimit = d.Bool()
		case 17:
			r.Background = d.Bool()
		case 18:
			r.HoldOutput = d.Bool()
		case 19:
			r.Note = d.String(MaxNote)
		}
	}
}

// EncodeFields is the wire form.
func (r *ExecOpen) EncodeFields(e *Encoder) {
	e.Message(1, &r.Req)
	e.Bytes(2, r.Digest)
	e.Bool(3, r.Follow)
	e.Int(4, r.StdinFollows)
}

// DecodeFields reads the wire form.
func (r *ExecOpen) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			d.Message(&r.Req)
		case 2:
			r.Digest = d.Bytes(maxDigest)
		case 3:
			r.Follow = d.Bool()
		case 4:
			r.StdinFollows = d.Int()
		}
	}
}

// EncodeFields is the wire form.
func (o *Output) EncodeFields(e *Encoder) {
	e.Bytes(1, o.Head)
	e.Bytes(2, o.Tail)
	e.Int(3, o.Dropped)
	e.Int(4, o.Total)
}

// DecodeFields reads the wire form.
func (o *Output) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			o.Head = d.Bytes(MaxFrame)
		case 2:
			o.Tail = d.Bytes(MaxFrame)
		case 3:
			o.Dropped = d.Int()
		case 4:
			o.Total = d.Int()
		}
	}
}

// EncodeFields is the wire form.
func (r *Result) EncodeFields(e *Encoder) {
	e.String(1, r.OpID)
	e.Int(2, int64(r.ExitCode))
	e.String(3, r.Signal)
	e.Bool(4, r.TimedOut)
	e.Bool(5, r.OOM)
	e.String(6, string(r.Limit))
	e.Float(7, r.WallMs)
	e.Float(8, r.UserMs)
	e.Float(9, r.SysMs)
	e.Int(10, r.PeakMemory)
	e.Int(11, r.ReadBytes)
	e.Int(12, r.WriteBytes)
	e.Message(13, &r.Stdout)
	e.Message(14, &r.Stderr)
	e.Int(15, int64(r.Survivors))
	if r.Error != nil {
		e.Message(16, r.Error)
	}
}

// DecodeFields reads the wire form.
func (r *Result) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			r.OpID = d.String(MaxOpID)
		case 2:
			r.ExitCode = small(d)
		case 3:
			r.Signal = d.String(MaxName)
		case 4:
			r.TimedOut = d.Bool()
		case 5:
			r.OOM = d.Bool()
		case 6:
			r.Limit = Limit(d.String(MaxName))
		case 7:
			r.WallMs = d.Float()
		case 8:
			r.UserMs = d.Float()
		case 9:
			r.SysMs = d.Float()
		case 10:
			r.PeakMemory = d.Int()
		case 11:
			r.ReadBytes = d.Int()
		case 12:
			r.WriteBytes = d.Int()
		case 13:
			d.Message(&r.Stdout)
		case 14:
			d.Message(&r.Stderr)
		case 15:
			r.Survivors = small(d)
		case 16:
			r.Error = &WireError{}
			d.Message(r.Error)
		}
	}
}

// small reads a number that fits an int32.
func small(d *Decoder) int {
	v := d.Int()
	if v != int64(int32(v)) {
		d.Fail(ErrTooLong)
		return 0
	}
	return int(v)
}

// EncodeFields is the wire form.
func (v *ExecEvent) EncodeFields(e *Encoder) {
	e.Uint(1, uint64(v.Kind))
	e.Int(2, int64(v.Pid))
	e.Uint(3, uint64(v.Stream))
	e.Int(4, v.Offset)
	e.Bytes(5, v.Data)
	e.Int(6, v.Dropped)
	if v.Result != nil {
		e.Message(7, v.Result)
	}
}

// DecodeFields reads the wire form.
func (v *ExecEvent) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			v.Kind = EventKind(d.UintMax(255))
		case 2:
			v.Pid = small(d)
		case 3:
			v.Stream = Stream(d.UintMax(255))
		case 4:
			v.Offset = d.Int()
		case 5:
			v.Data = d.Bytes(MaxFrame)
		case 6:
			v.Dropped = d.Int()
		case 7:
			v.Result = &Result{}
			d.Message(v.Result)
		}
	}
}

// maxInfoArgs and maxInfoArg bound the command line that a listing shows.
const (
	maxInfoArgs = 64
	maxInfoArg  = 1024
)

// EncodeFields is the wire form; the command line is clipped.
func (o *OpInfo) EncodeFields(e *Encoder) {
	e.String(1, o.OpID)
	e.Int(2, int64(o.Pid))
	for i, a := range o.Argv {
		if i == maxInfoArgs {
			break
		}
		e.item(3, clip(a, maxInfoArg))
	}
	e.String(4, o.ShellSession)
	e.String(5, o.User)
	e.String(6, o.Cwd)
	e.Bool(7, o.PTY)
	e.Bool(8, o.Running)
	e.Bool(9, o.Background)
	e.Int(10, o.StartedUnix)
	e.Int(11, int64(o.Survivors))
	if o.Result != nil {
		e.Message(12, o.Result)
	}
	e.String(13, clip(o.Note, MaxNote))
}

// DecodeFields reads the wire form.
func (o *OpInfo) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			o.OpID = d.String(MaxOpID)
		case 2:
			o.Pid = small(d)
		case 3:
			o.Argv = d.AppendString(o.Argv, maxInfoArgs, maxInfoArg)
		case 4:
			o.ShellSession = d.String(MaxName)
		case 5:
			o.User = d.String(MaxName)
		case 6:
			o.Cwd = d.String(MaxPath)
		case 7:
			o.PTY = d.Bool()
		case 8:
			o.Running = d.Bool()
		case 9:
			o.Background = d.Bool()
		case 10:
			o.StartedUnix = d.Int()
		case 11:
			o.Survivors = small(d)
		case 12:
			o.Result = &Result{}
			d.Message(o.Result)
		case 13:
			o.Note = d.String(MaxNote)
		}
	}
}
