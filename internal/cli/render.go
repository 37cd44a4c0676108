package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// table writes rows in aligned columns; the first row is the heading.
func table(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, r := range rows {
		for i, cell := range r {
			r[i] = printable(cell)
		}
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	_ = tw.Flush() // the error of a closed pipe has nobody to hear it
}

// printable keeps control characters, which may come from a box, off the terminal.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
}

// printJSON writes one value as indented JSON.
func printJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// raw gives a message of the wire as JSON with the names of its proto.
func raw(m proto.Message) json.RawMessage {
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		b, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	var out bytes.Buffer // protojson varies its spaces on purpose
	if json.Compact(&out, b) != nil {
		return b
	}
	return out.Bytes()
}

func printMessage(w io.Writer, m proto.Message) error { return printJSON(w, raw(m)) }

// printLine writes one of many values that come one after the other: JSON on a line of its own.
func printLine(w io.Writer, m proto.Message) error {
	_, err := w.Write(append(raw(m), '\n'))
	return err
}

func printMessages[M proto.Message](w io.Writer, ms []M) error {
	list := make([]json.RawMessage, 0, len(ms))
	for _, m := range ms {
		list = append(list, raw(m))
	}
	return printJSON(w, list)
}

// age writes how long ago a time was.
func age(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return ""
	}
	return duration(now.Sub(t.AsTime()))
}

// duration writes a length of time in its two largest units.
func duration(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// size writes bytes for people.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n)
	for _, u := range []string{"KiB", "MiB", "GiB"} {
		if f /= 1024; f < 1024 {
			return fmt.Sprintf("%.4g %s", f, u)
		}
	}
	return fmt.Sprintf("%.4g TiB", f/1024)
}
