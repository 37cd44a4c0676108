//go:build ignore

// Gen writes syscalls_<arch>.txt from the tables of golang.org/x/sys: one
// "number name" a line, in order of number.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		log.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		src, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go"))
		if err != nil {
			log.Fatal(err)
		}
		var out bytes.Buffer
		for sc := bufio.NewScanner(src); sc.Scan(); {
			name, nr, ok := strings.Cut(strings.TrimSpace(sc.Text()), "=")
			if ok && strings.HasPrefix(name, "SYS_") {
				name = strings.ToLower(strings.TrimPrefix(strings.TrimSpace(name), "SYS_"))
				fmt.Fprintf(&out, "%s %s\n", strings.TrimSpace(nr), name)
			}
		}
		src.Close()
		if err := os.WriteFile("syscalls_"+arch+".txt", out.Bytes(), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
