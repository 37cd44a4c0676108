package guestproto

// EncodeFields is the wire form.
func (r *FileRequest) EncodeFields(e *Encoder) {
	e.String(1, r.OpID)
	e.String(2, r.Path)
	e.String(3, r.To)
	e.String(4, r.User)
	e.Int(5, r.Offset)
	e.Int(6, r.Length)
	e.Int(7, r.Size)
	e.Uint(8, uint64(r.Depth))
	e.Uint(9, uint64(r.Mode))
	e.String(10, r.Owner)
	e.Bool(11, r.SetMode)
	e.Bool(12, r.SetOwner)
	e.Bool(13, r.Follow)
	e.Bool(14, r.Parents)
	e.Bool(15, r.Append)
	e.Bool(16, r.NoCreate)
	e.Bool(17, r.Recursive)
	e.Bool(18, r.Overwrite)
	e.Bool(19, r.Symbolic)
	e.Bytes(20, r.Digest)
	e.Bool(21, r.Behalf)
	e.String(22, r.AttrPrefix)
	e.Strings(23, r.Attrs)
}

// DecodeFields reads the wire form.
func (r *FileRequest) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			r.OpID = d.String(MaxOpID)
		case 2:
			r.Path = d.String(MaxPath)
		case 3:
			r.To = d.String(MaxPath)
		case 4:
			r.User = d.String(MaxName)
		case 5:
			r.Offset = d.Int()
		case 6:
			r.Length = d.Int()
		case 7:
			r.Size = d.Int()
		case 8:
			r.Depth = uint32(d.UintMax(1<<32 - 1))
		case 9:
			r.Mode = uint32(d.UintMax(1<<32 - 1))
		case 10:
			r.Owner = d.String(2*MaxName + 1)
		case 11:
			r.SetMode = d.Bool()
		case 12:
			r.SetOwner = d.Bool()
		case 13:
			r.Follow = d.Bool()
		case 14:
			r.Parents = d.Bool()
		case 15:
			r.Append = d.Bool()
		case 16:
			r.NoCreate = d.Bool()
		case 17:
			r.Recursive = d.Bool()
		case 18:
			r.Overwrite = d.Bool()
		case 19:
			r.Symbolic = d.Bool()
		case 20:
			r.Digest = d.Bytes(maxDigest)
		case 21:
			r.Behalf = d.Bool()
		case 22:
			r.AttrPrefix = d.String(MaxName)
		case 23:
			r.Attrs = d.AppendString(r.Attrs, MaxAttrs, MaxAttr)
		}
	}
}

// EncodeFields is the wire form.
func (f *FileInfo) EncodeFields(e *Encoder) {
	e.String(1, f.Path)
	e.String(2, f.Name)
	e.Uint(3, uint64(f.Type))
	e.Int(4, f.Size)
	e.Uint(5, uint64(f.Mode))
	e.Uint(6, uint64(f.UID))
	e.Uint(7, uint64(f.GID))
	e.String(8, clip(f.User, MaxName))
	e.String(9, clip(f.Group, MaxName))
	e.Int(10, f.ModUnix)
	e.String(11, f.Target)
	e.Uint(12, f.Links)
	e.Int(13, f.Blocks512)
	e.String(14, f.LeadsTo)
	e.Uint(15, uint64(f.LeadsToType))
	e.Uint(16, uint64(f.LeadsToMode))
	e.Strings(17, f.Attrs)
}

// DecodeFields reads the wire form.
func (f *FileInfo) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			f.Path = d.String(maxWalkPath)
		case 2:
			f.Name = d.String(MaxName)
		case 3:
			f.Type = FileType(d.UintMax(255))
		case 4:
			f.Size = d.Int()
		case 5:
			f.Mode = uint32(d.UintMax(1<<32 - 1))
		case 6:
			f.UID = uint32(d.UintMax(1<<32 - 1))
		case 7:
			f.GID = uint32(d.UintMax(1<<32 - 1))
		case 8:
			f.User = d.String(MaxName)
		case 9:
			f.Group = d.String(MaxName)
		case 10:
			f.ModUnix = d.Int()
		case 11:
			f.Target = d.String(MaxPath)
		case 12:
			f.Links = d.Uint()
		case 13:
			f.Blocks512 = d.Int()
		case 14:
			f.LeadsTo = d.String(MaxPath)
		case 15:
			f.LeadsToType = FileType(d.UintMax(255))
		case 16:
			f.LeadsToMode = uint32(d.UintMax(1<<32 - 1))
		case 17:
			f.Attrs = d.AppendString(f.Attrs, MaxAttrs, MaxAttr)
		}
	}
}

// maxWalkPath bounds a path that a recursive walk reports: deep trees pass PATH_MAX.
const maxWalkPath = 32 << 10

// EncodeFields is the wire form.
func (w *WatchEvent) EncodeFields(e *Encoder) {
	e.String(1, w.Kind)
	e.String(2, w.Path)
	e.Bool(3, w.Overflow)
}

// DecodeFields reads the wire form.
func (w *WatchEvent) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			w.Kind = d.String(MaxName)
		case 2:
			w.Path = d.String(maxWalkPath)
		case 3:
			w.Overflow = d.Bool()
		}
	}
}
