package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// word is one of a shell's: bare, or in quotes.
var word = regexp.MustCompile(`'[^']*'|"[^"]*"|\$\([^)]*\)|[^\s|<>&)]+|[|<>&)]`)

// Examples are what people copy: each must be a command line that is taken.
func TestExamplesAreTaken(t *testing.T) {
	var commands func(*cobra.Command)
	tried := 0
	commands = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			words := word.FindAllString(line, -1)
			for i, w := range words {
				if w == "dsec" || strings.HasSuffix(w, "$(dsec") {
					tried++
					if err := taken(words[i+1:]); err != nil {
						t.Errorf("%s: %s: %v", c.CommandPath(), strings.TrimSpace(line), err)
					}
				}
			}
		}
		for _, sub := range c.Commands() {
			commands(sub)
		}
	}
	commands((&Env{}).root())
	if tried < 60 {
		t.Errorf("only %d examples were found", tried)
	}
}

// taken parses the words up to the end of their command as main does.
func taken(words []string) error {
	var args []string
	for _, w := range words {
		if strings.Contains("|<>&)", w) {
			break
		}
		args = append(args, strings.Trim(w, `'"`))
	}
	cmd, rest, err := (&Env{}).root().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
