package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/store"
)

// recordVersion rises when an older daemon could not read the record any more.
const recordVersion = 1

// record is Record.Data. Unknown fields are skipped.
type record struct {
	Version   int            `json:"v"`
	BootID    string         `json:"boot"`
	Slot      int            `json:"slot"`
	Pid       int            `json:"pid"`
	StartTime uint64         `json:"start"`
	Root      runtime.Root   `json:"root"`
	Writable  bool           `json:"writable_root,omitempty"`
	Store     *store.Record  `json:"store,omitempty"`
	Dirs      []string       `json:"dirs,omitempty"`
	Limits    runtime.Limits `json:"limits"`
	Claimed   bool           `json:"claimed,omitempty"`
}

// Record is what Open needs.
func (b *box) Record() runtime.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := record{
		Version: recordVersion, BootID: bootID(), Slot: b.slot, Pid: b.pid, StartTime: b.startTime,
		Root: b.root, Writable: b.writable, Limits: b.limits, Claimed: b.claimed,
	}
	for _, d := range b.dirs {
		rec.Dirs = append(rec.Dirs, d.Path)
	}
	if b.store != nil {
		s := b.store.Record()
		rec.Store = &s
	}
	data, err := json.Marshal(rec)
	if err != nil { // plain data always has a JSON form
		panic(err)
	}
	return runtime.Record{ID: b.id, Runtime: "native", Data: data}
}

// startTime reads when a process was started; with the pid it names the
// process for as long as the machine runs.
func startTime(pid int) (uint64, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The second field is the command, in parentheses, and may hold anything.
	i := bytes.LastIndexByte(raw, ')')
	if i < 0 {
		return 0, errors.New("malformed /proc stat")
	}
	f := strings.Fields(string(raw[i+1:]))
	if len(f) < 20 {
		return 0, errors.New("malformed /proc stat")
	}
	return strconv.ParseUint(f[19], 10, 64)
}

func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
