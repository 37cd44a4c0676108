package dockerfile

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/dsec-platform/dsec/internal/template"
)

func (r *reader) command(c instructions.Command) error {
	line := lineOf(c.Location())
	switch c := c.(type) {
	case *instructions.RunCommand:
		return r.run(line, c)
	case *instructions.CopyCommand:
		return r.copy(line, c)
	case *instructions.AddCommand:
		return r.add(line, c)
	case *instructions.EnvCommand:
		step := template.Step{Kind: template.StepEnv}
		text := "ENV" // and names alone: a value may be a secret
		for _, kv := range c.Env {
			text += " " + kv.Key
			step.Env = append(step.Env, kv.Key+"="+kv.Value)
			known, err := r.word(line, kv.Value, append(append([]string{}, r.args...), r.env...))
			if err != nil {
				return err
			}
			r.env = set(r.env, kv.Key, known)
		}
		r.push(line, step, text)
	case *instructions.ArgCommand:
		return r.arg(c, &r.args)
	case *instructions.WorkdirCommand:
		r.push(line, template.Step{Kind: template.StepWorkdir, Dir: c.Path}, c.String())
	case *instructions.UserCommand:
		r.push(line, template.Step{Kind: template.StepUser, User: c.User}, c.String())
	case *instructions.ShellCommand:
		if len(c.Shell) == 0 {
			return refused(line, "SHELL", `write SHELL ["/bin/bash", "-c"]`, "it is empty")
		}
		r.shell = c.Shell
	case *instructions.EntrypointCommand:
		r.entrypoint = &c.ShellDependantCmdLine
	case *instructions.CmdCommand:
		r.cmd = &c.ShellDependantCmdLine
	case *instructions.ExposeCommand:
		r.note(line, "EXPOSE", "every port of a box can be reached through the platform, whether it is named or not")
	case *instructions.LabelCommand, *instructions.MaintainerCommand:
		r.note(line, strings.ToUpper(c.Name()), "it changes nothing in a session")
	case *instructions.VolumeCommand:
		r.note(line, "VOLUME", "what is written there stays in the box as everywhere else")
	case *instructions.StopSignalCommand:
		r.note(line, "STOPSIGNAL", "boxes are ended whole")
	default:
		return refused(line, strings.ToUpper(c.Name()), "leave it out", "it is not supported")
	}
	return nil
}

func (r *reader) push(line int, s template.Step, text string) {
	s.Label = fmt.Sprintf("line %d: %s", line, strings.Join(strings.Fields(text), " "))
	s.Args = r.args
	r.plan.Steps = append(r.plan.Steps, s)
}

func (r *reader) note(line int, what, why string) {
	r.plan.Notes = append(r.plan.Notes, fmt.Sprintf("line %d: %s is noted: %s", line, what, why))
}

func (r *reader) run(line int, c *instructions.RunCommand) error {
	if len(c.FlagsUsed) > 0 {
		return refused(line, "RUN --"+c.FlagsUsed[0], "leave it out: each step is kept by itself, and files come by COPY", "it is not supported")
	}
	s := template.Step{Kind: template.StepRun, Shell: r.shell}
	switch {
	case len(c.CmdLine) == 0:
		return refused(line, "RUN", "give a command", "it has none")
	case !c.PrependShell:
		s.Argv = c.CmdLine
	default:
		s.Script = strings.Join(c.CmdLine, " ")
		if err := r.heredocs(line, c, &s); err != nil {
			return err
		}
		if strings.TrimSpace(s.Script) == "" {
			return refused(line, "RUN", "give a command", "it has none")
		}
	}
	label := strings.Join(c.CmdLine, " ")
	r.push(line, s, "RUN "+label)
	return nil
}

// heredocs gives a script the here-documents that belong to it.
func (r *reader) heredocs(line int, c *instructions.RunCommand, s *template.Step) error {
	if len(c.Files) == 1 && strings.HasPrefix(s.Script, "<<") && !strings.ContainsAny(s.Script, " \t;|&>") {
		f := c.Files[0]
		if strings.HasPrefix(f.Data, "#!") {
			return refused(line, "RUN <<"+f.Name, "COPY the script and run it", "a script with its own interpreter is not supported")
		}
		s.Script = f.Data
		if f.Chomp {
			s.Script = chomp(f.Data)
		}
		return nil
	}
	for _, f := range c.Files {
		s.Script += "\n" + f.Data + f.Name
	}
	if len(c.Files) > 0 {
		s.Script += "\n"
	}
	return nil
}

// chomp takes away the tabs that <<- allows before each line.
func chomp(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	return strings.Join(lines, "")
}

func (r *reader) copy(line int, c *instructions.CopyCommand) error {
	switch {
	case c.From != "":
		return refused(line, "COPY --from", "COPY from the build's own files", "there are no other stages or images to copy from")
	case c.Parents:
		return refused(line, "COPY --parents", "name the destination of each source", "it is not supported")
	case len(c.ExcludePatterns) > 0:
		return refused(line, "COPY --exclude", "list them in .dockerignore", "it is not supported")
	}
	return r.files(line, c.SourcesAndDest, c.Chown, c.Chmod, "COPY")
}

func (r *reader) add(line int, c *instructions.AddCommand) error {
	switch {
	case len(c.ExcludePatterns) > 0 || c.Checksum != "" || c.KeepGitDir != nil || c.Unpack != nil:
		return refused(line, "ADD", "use COPY, and RUN what is needed after it", "its flags are not supported")
	}
	for _, s := range c.SourcePaths {
		lower := strings.ToLower(s)
		if strings.Contains(s, "://") || strings.HasPrefix(s, "git@") {
			return refused(line, "ADD "+s, "fetch it beside the Dockerfile and COPY it", "sources in the network are not supported")
		}
		for _, end := range []string{".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst"} {
			if strings.HasSuffix(lower, end) {
				return refused(line, "ADD "+s, "COPY it and unpack it by RUN tar", "archives are not unpacked")
			}
		}
	}
	return r.files(line, c.SourcesAndDest, c.Chown, c.Chmod, "ADD")
}

func (r *reader) files(line int, f instructions.SourcesAndDest, owner, mode, name string) error {
	if len(f.SourceContents) > 0 {
		return refused(line, name+" <<"+path.Base(f.SourceContents[0].Path), "write the file beside the Dockerfile, or RUN cat", "files written in the Dockerfile are not supported")
	}
	if mode != "" {
		if _, err := strconv.ParseUint(mode, 8, 12); err != nil {
			return refused(line, name+" --chmod="+mode, "write it in octal, such as --chmod=0755", "not an octal mode")
		}
	}
	if owner == "" {
		owner = "0:0"
	}
	r.push(line, template.Step{Kind: template.StepCopy, Copy: &template.CopyStep{
		Files: r.o.Files, Sources: f.SourcePaths, Dest: f.DestPath, Owner: owner, Mode: mode,
	}}, name+" "+strings.Join(append(append([]string{}, f.SourcePaths...), f.DestPath), " "))
	return nil
}

// start is the start command that ENTRYPOINT and CMD make together, a line for the shell.
func (r *reader) start() string {
	e, c := r.entrypoint, r.cmd
	switch {
	case e == nil && c == nil:
		return ""
	case e == nil:
		return r.line(c)
	case e.PrependShell || c == nil:
		return r.line(e)
	case c.PrependShell: // Docker gives the entry point a shell and its script as arguments
		return words(append(append(append([]string{}, e.CmdLine...), r.shellOr()...), strings.Join(c.CmdLine, " ")))
	}
	return words(append(append([]string{}, e.CmdLine...), c.CmdLine...))
}

func (r *reader) shellOr() []string {
	if len(r.shell) > 0 {
		return r.shell
	}
	return []string{"/bin/sh", "-c"}
}

func (r *reader) line(c *instructions.ShellDependantCmdLine) string {
	switch {
	case len(c.CmdLine) == 0:
		return ""
	case !c.PrependShell:
		return words(c.CmdLine)
	case len(r.shell) > 0:
		return words(append(append([]string{}, r.shell...), strings.Join(c.CmdLine, " ")))
	}
	return strings.Join(c.CmdLine, " ")
}

// words quotes arguments for the shell.
func words(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if a != "" && strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@+%") == "" {
			out[i] = a
			continue
		}
		out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(out, " ")
}
