package dockerfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template"
)

func TestParse(t *testing.T) {
	p, err := Parse([]byte(`# syntax=docker/dockerfile:1
ARG VERSION=3.12
FROM --platform=linux/amd64 python:${VERSION}-slim AS only
ARG VERSION
ARG EXTRA=x$VERSION
ENV A=1 B="two words" \
    C=$PATH:/c
LABEL a=b
EXPOSE 80
WORKDIR /app
RUN pip install \
    -r requirements.txt
RUN ["/bin/true", "a b"]
RUN <<EOF
echo one
echo two
EOF
RUN cat <<-X > /f && true
	body
X
COPY --chown=user:user --chmod=755 a b /dest/
ADD c .
USER user
SHELL ["/bin/bash", "-ec"]
RUN echo $EXTRA
ENTRYPOINT ["serve", "it's"]
CMD ["--port", "80"]
`), Options{Args: map[string]string{"VERSION": "3.13"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.From != "python:3.13-slim" || p.Platform != "linux/amd64" || len(p.Notes) != 2 || !strings.Contains(p.Notes[1], "line 9: EXPOSE") {
		t.Errorf("%+v", p)
	}
	if want := `serve 'it'\''s' --port 80`; p.Start.Command != want {
		t.Errorf("start %s, want %s", p.Start.Command, want)
	}
	var got []string
	for _, s := range p.Steps {
		line := fmt.Sprintf("%s %q %q %q %s%s", s.Kind, s.Script, s.Argv, s.Env, s.Dir, s.User)
		if s.Copy != nil {
			line = fmt.Sprintf("%s %q %s %s %s", s.Kind, s.Copy.Sources, s.Copy.Dest, s.Copy.Owner, s.Copy.Mode)
		}
		got = append(got, line)
	}
	want := []string{
		`ENV "" [] ["A=1" "B=\"two words\"" "C=$PATH:/c"] `,
		`WORKDIR "" [] [] /app`,
		`RUN "pip install     -r requirements.txt" [] [] `,
		`RUN "" ["/bin/true" "a b"] [] `,
		`RUN "echo one\necho two\n" [] [] `,
		`RUN "cat <<-X > /f && true\n\tbody\nX\n" [] [] `,
		`COPY ["a" "b"] /dest/ user:user 755`,
		`COPY ["c"] . 0:0 `,
		`USER "" [] [] user`,
		`RUN "echo $EXTRA" [] [] `,
	}
	for i := range max(len(want), len(got)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("step %d\n got %s\nwant %s", i, at(got, i), at(want, i))
		}
	}
	last := p.Steps[len(p.Steps)-1]
	if strings.Join(last.Args, " ") != "VERSION=3.13 EXTRA=x3.13" || last.Shell[1] != "-ec" || last.Label != "line 25: RUN echo $EXTRA" {
		t.Errorf("%+v", last)
	}
	if template.StepRun != p.Steps[2].Kind || p.Steps[2].Args == nil {
		t.Error("arguments are missing")
	}
}

func at(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return "(none)"
}

// What is not understood is refused, with its line and what to do.
func TestRefusals(t *testing.T) {
	for file, want := range map[string]string{
		"":                "no instructions",
		"RUN x":           "build stage",
		"FROM a\nFROM b":  "line 2",
		"FROM scratch":    "more than nothing",
		"FROM $X":         "image's name is empty",
		"FROM a\n\nFOO b": "line 3",
		"FROM a\nRUN --mount=type=cache,target=/x y":          "line 2: RUN --mount",
		"FROM a\nRUN --network=host y":                        "line 2: RUN --network",
		"FROM a\nCOPY --from=b /x /y":                         "line 2: COPY --from",
		"FROM a\nCOPY x":                                      "line 2",
		"FROM a\nCOPY --chmod=u+x x /y":                       "octal",
		"FROM a\nCOPY <<E /y\nx\nE\n":                         "line 2",
		"FROM a\nADD https://x/y /z":                          "line 2: ADD https://x/y",
		"FROM a\nADD x.tar.gz /z":                             "unpack it by RUN tar",
		"FROM a\nHEALTHCHECK CMD true":                        "line 2: HEALTHCHECK",
		"FROM a\nONBUILD RUN x":                               "line 2: ONBUILD",
		"FROM a\nRUN <<E\n#!/usr/bin/python\nE\n":             "own interpreter",
		"# escape=`\nFROM a":                                  "escape directive",
		"FROM a\nRUN x" + strings.Repeat("\nRUN x", MaxSteps): "more than 500 steps",
		strings.Repeat("#", MaxSize+1):                        "more than 1048576",
	} {
		_, err := Parse([]byte(file), Options{})
		if err == nil || !strings.Contains(err.Error(), want) || errdefs.From(err).Class != errdefs.User {
			t.Errorf("%.60q: %v, want %s", file, err, want)
		}
	}
	if _, err := Parse([]byte("FROM a"), Options{Args: map[string]string{"X": "1"}}); err == nil || !strings.Contains(err.Error(), "argument X") {
		t.Errorf("an unused argument: %v", err)
	}
}

// Whatever a Dockerfile says, reading it ends, and gives steps that say what they are or an error of the user's.
func FuzzParse(f *testing.F) {
	f.Add("FROM a\nRUN b\nCOPY c d\nENV e=$f\nCMD [\"g\"]")
	f.Add("ARG A=1\nFROM x:$A\nARG A\nRUN <<E\nhi\nE\nUSER ${B:-u}")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse([]byte(s), Options{})
		if err != nil {
			if errdefs.From(err).Class != errdefs.User {
				t.Fatal(err)
			}
			return
		}
		if p.From == "" {
			t.Fatal("no base")
		}
		for _, st := range p.Steps {
			if st.Kind == "" || !strings.HasPrefix(st.Label, "line ") || st.Kind == template.StepRun && st.Script == "" && len(st.Argv) == 0 {
				t.Fatalf("%+v", st)
			}
		}
	})
}
