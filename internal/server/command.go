package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dsec-platform/dsec/internal/cli"
)

func newUp(env *cli.Env) *cobra.Command {
	var (
		c                Config
		config           string
		logFormat, level string
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Serve boxes on this machine",
		Long: `Serve boxes on this machine: API, control plane and node in one process, state in
the data directory. It is ready when GET /healthz answers 200. At a first start it makes the
template "base" from this host's programs, and an API key, which it prints and keeps in DIR/api-key.

SIGTERM stops it gracefully; boxes and what runs in them go on, and the next start
adopts them (also after kill -9). dsec down ends the boxes too.

The file of --config (YAML) may have:
  scheduler_config:   max_active_sessions, queue_length, priority_levels, cpu_overcommit_ratio,
                      memory_overcommit_ratio, sandbox_pool {min_idle, max_idle, idle_scale_up_step,
                      declared_peak}, task_timeout_seconds
  data_mounts:        host directories that sessions may mount read-only
  pool_templates:     templates whose warm pool is filled before anybody asks
  egress:             what sessions may reach at most, and how
  registries:         the only ones that images may come from
  registry_mirrors:   asked instead of registries, {registry, mirror}
  keep_sessions_days: how long the records of ended sessions are kept (30)
  reserve_memory:     memory kept from boxes, such as 2Gi`,
		Example: `  dsec up
  dsec up --data-dir /srv/dsec --listen 127.0.0.1:7070 --config /etc/dsec.yaml
  DSEC_URL=http://127.0.0.1:7070 DSEC_API_KEY=$(cat /srv/dsec/api-key) dsec ps`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.DataDir, err = filepath.Abs(env.DataDir()); err != nil {
				return err
			}
			if c.File, err = ReadFile(config); err != nil {
				return err
			}
			if c.Logger, err = logger(env, logFormat, level); err != nil {
				return err
			}
			c.Notify = func(s string) { fmt.Fprintln(env.Err, "dsec: "+s) }
			return Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", "127.0.0.1:7070", "TCP address of the API")
	f.StringVar(&config, "config", "", "configuration file: scheduler_config, data_mounts, egress and more, see docs/operations.md")
	f.StringVar(&c.Domain, "e2b-domain", "", "domain by which E2B's SDKs reach the ports of a sandbox, as PORT-ID.DOMAIN; may have a port (default localhost:PORT)")
	f.BoolVar(&c.NoPool, "no-pool", false, "make no box ahead of demand")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	for flag, values := range map[string][]string{"log-format": {"text", "json"}, "log-level": {"debug", "info", "warn", "error"}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flags are there
	}
	return cmd
}

func logger(env *cli.Env, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %s: use debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(env.Err, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(env.Err, o)), nil
	}
	return nil, fmt.Errorf("--log-format %s: use text or json", format)
}

func newDown(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End what a stopped server left: boxes, pool, spawner",
		Long: `End what a server that is stopped (or was killed) left alive in its data directory:
the boxes of sessions, the warm pool and the spawner. Their processes, cgroups, mounts and
directories are removed; templates, keys and the record of sessions stay. The sessions of these
boxes FAIL at the next start. It refuses while the server runs.`,
		Example: `  dsec down
  dsec down --data-dir /srv/dsec`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(env.DataDir())
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); err != nil {
				return fmt.Errorf("directory %s: there is no data directory", dir)
			}
			ended, err := Down(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if !env.JSON() {
				fmt.Fprintln(env.Out, ended)
				return nil
			}
			return json.NewEncoder(env.Out).Encode(struct {
				Removed int `json:"removed"`
				Ended
			}{ended.Boxes(), ended})
		},
	}
	return cmd
}

// Hooks give the command line what needs the server's packages.
func Hooks() cli.Hooks {
	return cli.Hooks{
		Commands:     []func(*cli.Env) *cobra.Command{newUp, newDown, newBench},
		Local:        Local,
		Templates:    openTemplates,
		NeverGranted: neverGranted,
	}
}
