// Command dsec makes isolated, stateful boxes for agents: server, node and
// command line in one binary.
package main

import (
	"os"

	"github.com/dsec-platform/dsec/internal/cli"
	"github.com/dsec-platform/dsec/internal/server"
)

func main() { os.Exit(cli.Main(os.Args[1:], server.Hooks())) }
