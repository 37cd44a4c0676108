package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

func newTemplate(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Make, list, verify and remove templates (the environments of sessions)",
		Example: `  dsec template import python docker.io/library/python:3.12
  dsec template import mine ./rootfs.tar
  dsec template build debian --debian bookworm --packages python3,git --init 'useradd -m grader'
  dsec template ls`,
		RunE: group,
	}
	cmd.AddCommand(newTemplateLs(e), newTemplateShow(e), newTemplateRm(e), newTemplateVerify(e), newTemplateImport(e), newTemplateBuild(e))
	return cmd
}

// group is a command that only holds others.
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s: unknown command %q (see `%s --help`)", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return cmd.Help()
}

func newTemplateLs(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List templates", Args: nArgs(0, 0, "no arguments"),
		Example: "  dsec template ls\n  dsec template ls -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := e.templates(cmd.Context())
			if err != nil {
				return err
			}
			list, err := store.List(cmd.Context())
			if err != nil {
				return err
			}
			if e.JSON() {
				return printMessages(e.Out, list)
			}
			if e.quiet {
				for _, t := range list {
					writeAll(e.Out, t.GetName()+"@"+t.GetVersion()+"\n")
				}
				return nil
			}
			table(e.Out, templateRows(list, time.Now()))
			return nil
		},
	}
}

func templateRows(list []*dsecv1.Template, now time.Time) [][]string {
	heading := []string{"TEMPLATE", "VERSION", "SIZE", "LAYERS", "AGE", "IN USE", "SOURCE"}
	// Most nodes have none of projects.
	owned := slices.ContainsFunc(list, func(t *dsecv1.Template) bool { return t.GetProject() != "" })
	if owned {
		heading = slices.Insert(heading, 1, "ALIAS", "PROJECT")
	}
	rows := [][]string{heading}
	for _, t := range list {
		row := []string{t.GetName(), t.GetVersion(), size(t.GetSize()), fmt.Sprint(len(t.GetLayers())), age(t.GetCreated(), now), fmt.Sprint(t.GetInUse()), t.GetSource()}
		if owned {
			row = slices.Insert(row, 1, t.GetAlias(), t.GetProject())
		}
		rows = append(rows, row)
	}
	return rows
}

func newTemplateShow(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "show TEMPLATE", Aliases: []string{"inspect"}, Short: "Show a template, its layers and its defaults", Args: nArgs(1, 1, "TEMPLATE"),
		Example: "  dsec template show python\n  dsec template show python@3f1c -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := e.templates(cmd.Context())
			if err != nil {
				return err
			}
			t, err := store.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return e.showTemplate(t)
		},
	}
}

func (e *Env) showTemplate(t *dsecv1.Template) error {
	if e.JSON() {
		return printMessage(e.Out, t)
	}
	rows := [][]string{{"template", t.GetName() + "@" + t.GetVersion()}}
	if t.GetProject() != "" {
		rows = append(rows, []string{"alias", t.GetAlias() + " of project " + t.GetProject()})
	}
	table(e.Out, append(rows, [][]string{
		{"digest", t.GetDigest()}, {"source", t.GetSource()}, {"created", age(t.GetCreated(), time.Now()) + " ago"},
		{"size", size(t.GetSize())}, {"user", t.GetUser()}, {"directory", t.GetCwd()}, {"environment", strings.Join(t.GetEnv(), " ")},
		{"portable", fmt.Sprint(!t.GetHostView())}, {"in use", fmt.Sprint(t.GetInUse())},
	}...))
	rows = [][]string{{"LAYER", "SIZE", "FORMAT", "HOLDS"}}
	for _, l := range t.GetLayers() {
		rows = append(rows, []string{l.GetDigest(), size(l.GetSize()), l.GetFormat(), l.GetNote()})
	}
	writeAll(e.Out, "\n")
	table(e.Out, rows)
	return nil
}

func newTemplateRm(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm TEMPLATE...", Aliases: []string{"remove"}, Short: "Remove versions (name@version) or all of a name", Args: nArgs(1, -1, "TEMPLATE"),
		Long:    "Remove versions, or all versions of a name, and the layers that nothing else uses. Refused while a session uses one.",
		Example: "  dsec template rm python@3f1c\n  dsec template rm old-env",
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := e.templates(cmd.Context())
			if err != nil {
				return err
			}
			for _, ref := range args {
				if err := store.Remove(cmd.Context(), ref); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
