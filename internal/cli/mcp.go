package cli

import (
	"context"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/dsec-platform/dsec/internal/mcp"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newMCP(e *Env) *cobra.Command {
	var f sessionFlags
	var listen string
	var most int
	var verbose bool
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Give agents boxes over the Model Context Protocol",
		Long: `Serve the Model Context Protocol, so that an agent's host can give its agent boxes:
the tools create, exec, read, write, list and stop.

It serves one host on standard input and output, in the project of DSEC_API_KEY. With
--listen it serves many by streamable HTTP; each brings an API key as its bearer token and
acts in that key's project. The flags say what sessions are made of where the agent does
not. Sessions end with the connection that made them, unless made with keep.`,
		Example: `  dsec mcp --url http://127.0.0.1:7070 -t python --mem 1Gi
  dsec mcp --listen 127.0.0.1:7071`,
		Args: nArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options(e)
			if err != nil {
				return err
			}
			if most < 1 {
				return usagef("--max-sessions %d: want 1 or more", most)
			}
			m := mcp.Options{Session: o, MaxSessions: most}
			if m.Spec, err = f.overrides(e); err != nil {
				return err
			}
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelDebug
			}
			m.Log = slog.New(slog.NewTextHandler(e.Err, &slog.HandlerOptions{Level: level}))
			if listen == "" {
				m.Dial = func(string) (*dsec.Client, error) { return e.Client() }
				return mcp.New(m).ServeStreams(cmd.Context(), e.In, e.Out)
			}
			return e.listenMCP(cmd.Context(), listen, m)
		},
	}
	f.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&listen, "listen", "", "serve streamable HTTP on this TCP address")
	fl.IntVar(&most, "max-sessions", 32, "live sessions that one connection may have")
	fl.BoolVarP(&verbose, "verbose", "v", false, "say on standard error what is called")
	return cmd
}

func (e *Env) listenMCP(ctx context.Context, address string, m mcp.Options) error {
	if e.project != "" {
		return usagef("--project excludes --listen: a caller's key opens its project")
	}
	if _, err := e.Client(); err != nil { // no server is named: say so now
		return err
	}
	m.Dial = func(key string) (*dsec.Client, error) {
		return dsec.New(dsec.Options{URL: e.URL(), APIKey: key, Transport: e.transport})
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	writeAll(e.Err, "dsec: MCP at http://"+l.Addr().String()+"\n")
	return mcp.New(m).Serve(ctx, l)
}
