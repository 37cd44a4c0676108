package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newNet(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net",
		Short: "Ask about, switch and look back at what sessions reach",
		Long: `Ask what a session may reach, switch it to another policy, and look at what was tried.
What a session may reach is said in its spec: see network in docs/spec.md.`,
		Example: "  dsec net check $id api.example.com:443\n  dsec net switch $id agent\n  dsec net log $id --follow\n  dsec net explain $id",
		RunE:    group,
	}
	cmd.AddCommand(newNetCheck(e), newNetSwitch(e), newNetLog(e), newNetExplain(e))
	return cmd
}

func newNetCheck(e *Env) *cobra.Command {
	var udp bool
	cmd := &cobra.Command{
		Use: "check SESSION HOST:PORT", Short: "Say what would be decided about a destination, and by which rule", Args: nArgs(2, 2, "SESSION and HOST:PORT"),
		Long:    "Say what would be decided about a destination now, and by which rule. Nothing is sent. The exit code is 1 when it is refused.",
		Example: "  dsec net check $id api.example.com:443\n  dsec net check $id 10.20.0.8:53 --udp",
		RunE: func(cmd *cobra.Command, args []string) error {
			host, port, err := destination(args[1])
			if err != nil {
				return err
			}
			c, err := e.Client()
			if err != nil {
				return err
			}
			q := &dsecv1.CheckRequest{SessionId: args[0], Host: host, Port: port}
			if udp {
				q.Protocol = "udp"
			}
			r, err := c.Networks.Check(cmd.Context(), q)
			if err != nil {
				return dsec.AsError(err)
			}
			if e.JSON() {
				if err := printMessage(e.Out, r); err != nil {
					return err
				}
			} else {
				writeAll(e.Out, r.GetMessage()+"\n")
				if r.GetRemedy() != "" {
					writeAll(e.Out, "  remedy: "+r.GetRemedy()+"\n")
				}
			}
			if !r.GetAllowed() {
				return exitCode(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&udp, "udp", false, "ask about a datagram instead of a connection")
	return cmd
}

func destination(text string) (host string, port int32, err error) {
	host, p, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, usagef("%q is not HOST:PORT, like api.example.com:443", text)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, usagef("%q is not HOST:PORT, like api.example.com:443", text)
	}
	return host, int32(n), nil
}

func newNetSwitch(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "switch SESSION PHASE", Short: "Put another phase of the session's network in force", Args: nArgs(2, 2, "SESSION and PHASE"),
		Long: `Put another phase of the session's network in force; "base" is the policy outside of the phases.
When it returns, connections that the phase does not allow are cut.`,
		Example: "  dsec net switch $id agent\n  dsec net switch $id base",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.Client()
			if err != nil {
				return err
			}
			r, err := c.Networks.Switch(cmd.Context(), &dsecv1.SwitchRequest{SessionId: args[0], Phase: args[1]})
			if err != nil {
				return dsec.AsError(err)
			}
			if e.JSON() {
				return printMessage(e.Out, r)
			}
			if !e.quiet {
				writeAll(e.Err, fmt.Sprintf("phase %s is in force: egress_policy %s\n", args[1], r.GetEgressPolicy()))
			}
			return nil
		},
	}
}

func newNetLog(e *Env) *cobra.Command {
	var follow, denied bool
	var since time.Duration
	var limit int
	cmd := &cobra.Command{
		Use: "log [SESSION]", Short: "Show what was tried and decided", Args: nArgs(0, 1, "at most one SESSION"),
		Long:    "Show what was tried and decided, oldest first: of one session or of all of the project, also of ended ones. With -f go on with what is tried from now on.",
		Example: "  dsec net log $id\n  dsec net log --denied --since 10m\n  dsec net log -f -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.Client()
			if err != nil {
				return err
			}
			q := &dsecv1.LogRequest{Limit: int32(limit), Follow: follow, SessionId: strings.Join(args, "")}
			if denied {
				q.Verdict = "deny"
			}
			if since > 0 {
				q.Since = timestamppb.New(time.Now().Add(-since))
			}
			if follow {
				e.sayUnnetworked(cmd.Context(), c, q.SessionId)
			}
			n, err := e.netLog(cmd.Context(), c, q)
			if err == nil && n == 0 && !follow {
				e.sayUnnetworked(cmd.Context(), c, q.SessionId)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on until interrupted")
	f.BoolVar(&denied, "denied", false, "only what was refused")
	f.DurationVar(&since, "since", 0, "only what was decided so long ago at most, such as 10m")
	f.IntVar(&limit, "limit", 1000, "the newest so many")
	return cmd
}

// netLog shows decisions and gives how many they were.
func (e *Env) netLog(ctx context.Context, c *dsec.Client, q *dsecv1.LogRequest) (n int, err error) {
	stream, err := c.Networks.Log(ctx, q)
	if err != nil {
		return 0, dsec.AsError(err)
	}
	defer stream.Close()
	for {
		r, err := stream.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil && q.GetFollow() && ctx.Err() != nil:
			return n, nil // as asked
		case err != nil:
			return n, dsec.AsError(err)
		}
		n++
		if e.JSON() {
			if err := printLine(e.Out, r.GetDecision()); err != nil {
				return n, err
			}
			continue
		}
		writeAll(e.Out, decisionLine(r.GetDecision())+"\n")
	}
}

// decisionLine is one decision for people.
func decisionLine(d *dsecv1.Decision) string {
	target := d.GetName()
	if d.GetAddress() != "" {
		if target != "" {
			target += " "
		}
		target += d.GetAddress()
	}
	if d.GetPort() != 0 {
		target += ":" + strconv.Itoa(int(d.GetPort()))
	}
	fields := []string{
		d.GetTime().AsTime().Local().Format("15:04:05.000"), fmt.Sprintf("%-5s", d.GetVerdict()), fmt.Sprintf("%-7s", d.GetKind()),
		fmt.Sprintf("%-4s", d.GetProtocol()), target,
	}
	for _, more := range []struct{ name, value string }{{"rule", d.GetRule()}, {"reason", d.GetReason()}, {"phase", d.GetPhase()}, {"credential", d.GetCredential()}, {"", d.GetDetail()}} {
		switch {
		case more.value == "":
		case more.name == "":
			fields = append(fields, "("+more.value+")")
		default:
			fields = append(fields, more.name+"="+more.value)
		}
	}
	if d.GetKind() == "close" {
		fields = append(fields, fmt.Sprintf("sent=%d received=%d in %.0f ms", d.GetSent(), d.GetReceived(), d.GetDurationMs()))
	}
	if d.GetCount() > 1 {
		fields = append(fields, fmt.Sprintf("× %d", d.GetCount()))
	}
	return strings.Join(fields, "  ") + "  " + d.GetSessionId()
}

func newNetExplain(e *Env) *cobra.Command {
	var since time.Duration
	cmd := &cobra.Command{
		Use: "explain [SESSION]", Short: "Turn refused attempts into the rules that would have allowed them", Args: nArgs(0, 1, "at most one SESSION"),
		Long: `Turn what was refused into the rules that would have allowed it: a task that names one host often needs
those of its downloads and static files, too. Read the notes before you add a rule.`,
		Example: "  dsec net explain $id\n  dsec net explain --since 1h -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.Client()
			if err != nil {
				return err
			}
			q := &dsecv1.ExplainRequest{SessionId: strings.Join(args, "")}
			if since > 0 {
				q.Since = timestamppb.New(time.Now().Add(-since))
			}
			r, err := c.Networks.Explain(cmd.Context(), q)
			if err != nil {
				return dsec.AsError(err)
			}
			if len(r.GetSuggestions()) == 0 {
				if !e.sayUnnetworked(cmd.Context(), c, q.GetSessionId()) && !e.quiet {
					writeAll(e.Err, "nothing was refused\n")
				}
				if !e.JSON() {
					return nil
				}
			}
			if e.JSON() {
				return printMessages(e.Out, r.GetSuggestions())
			}
			rows := [][]string{{"ATTEMPTS", "ADD TO", "RULE", "NOTE"}}
			for _, s := range r.GetSuggestions() {
				note := s.GetNote()
				if s.GetWider() != "" {
					note = strings.TrimSpace(note + " (wider: " + s.GetWider() + ")")
				}
				rows = append(rows, []string{strconv.FormatInt(s.GetAttempts(), 10), s.GetField(), s.GetRule(), note})
			}
			table(e.Out, rows)
			return nil
		},
	}
	cmd.Flags().DurationVar(&since, "since", 0, "only what was refused so long ago at most, such as 1h")
	return cmd
}
