package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// recordVersion is written into every record. A reader takes newer ones too: it
// skips fields and kinds that it does not know.
const recordVersion = 1

// recordKind says what is about to be done, or was done, to a box.
type recordKind string

const (
	recEpoch      recordKind = "epoch"      // first of a file: boot id, epoch, run
	recCreating   recordKind = "creating"   // a box is about to be made: Meta
	recMade       recordKind = "made"       // the runtime made it: Record
	recPool       recordKind = "pool"       // it waits in the pool
	recClaiming   recordKind = "claiming"   // it leaves the pool for a session: Meta
	recBound      recordKind = "bound"      // the session has it; from here on it is adopted
	recState      recordKind = "state"      // live, suspended or audit; Suspended so far
	recNetwork    recordKind = "network"    // another policy is about to be in force: Network
	recDestroying recordKind = "destroying" // it is about to be reclaimed; Cause if nobody asked for that
	recLost       recordKind = "lost"       // nothing is left of it, and its session does not know yet: Cause
	recGone       recordKind = "gone"       // nothing is left of it
)

// record is one line of the journal.
type record struct {
	V    int        `json:"v"`
	Kind recordKind `json:"kind"`
	Box  string     `json:"box,omitempty"`

	BootID string `json:"boot_id,omitempty"`
	Epoch  int64  `json:"epoch,omitempty"`
	Run    int64  `json:"run,omitempty"`

	Meta      *meta           `json:"meta,omitempty"`
	Record    *runtime.Record `json:"record,omitempty"`
	State     State           `json:"state,omitempty"`
	At        time.Duration   `json:"at,omitempty"`        // boot time of a state
	Suspended time.Duration   `json:"suspended,omitempty"` // in all, when the state began
	Cause     EventKind       `json:"cause,omitempty"`
	Network   *networkMeta    `json:"network,omitempty"`
}

// meta is what the node must know of a box after a restart. It has no secrets:
// no environment, no code.
type meta struct {
	Session      string         `json:"session,omitempty"`
	Version      int64          `json:"version,omitempty"`
	Project      string         `json:"project,omitempty"`
	Runtime      string         `json:"runtime"`
	Template     string         `json:"template"`
	RootWritable bool           `json:"root_writable,omitempty"`
	Limits       runtime.Limits `json:"limits"`
	MaxIdle      time.Duration  `json:"max_idle,omitempty"`
	MaxRuntime   time.Duration  `json:"max_runtime,omitempty"`
	MaxSuspended time.Duration  `json:"max_suspended,omitempty"`
	Pooled       bool           `json:"pooled,omitempty"`
	ColdReason   string         `json:"cold_reason,omitempty"`
	Since        time.Time      `json:"since,omitzero"`
	Started      time.Duration  `json:"started,omitempty"` // boot time when it was bound
	Network      *networkMeta   `json:"network,omitempty"`
	Trusts       bool           `json:"trusts,omitempty"` // its project's authority
}

func (m *meta) poolKey() poolKey { return poolKey{m.Template, m.Runtime, m.RootWritable} }

// The check sum is the last field of the line, over all bytes before it, so that
// a line is plain JSON and a torn one is told apart.
const (
	crcPrefix = `,"crc":"`
	crcLen    = len(crcPrefix) + 8 + len(`"}`)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode gives the record's line, newline included.
func (r *record) encode() ([]byte, error) {
	r.V = recordVersion
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s record of box %s: %w", r.Kind, r.Box, err)
	}
	b = b[:len(b)-1] // the closing brace
	return fmt.Appendf(b, "%s%08x\"}\n", crcPrefix, crc32.Checksum(b, castagnoli)), nil
}

// decodeRecord reads one line without its newline; ok is false when it is torn or damaged.
func decodeRecord(line []byte) (r record, ok bool) {
	if len(line) < crcLen || line[len(line)-1] != '}' {
		return r, false
	}
	body, tail := line[:len(line)-crcLen], line[len(line)-crcLen:]
	if !bytes.HasPrefix(tail, []byte(crcPrefix)) {
		return r, false
	}
	sum, err := strconv.ParseUint(string(tail[len(crcPrefix):len(crcPrefix)+8]), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(body, castagnoli) {
		return r, false
	}
	if json.Unmarshal(line, &r) != nil {
		return r, false
	}
	return r, true
}
