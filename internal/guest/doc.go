// Package guest is the agent's side of a box: it serves the guest protocol to
// the node, starts operations, keeps their output and results, reaps what is left
// behind, and proxies file operations to a worker. It runs as PID 1 of a box
// (Options.Init) or inside a test's own process.
//
// Everything that comes from the box (passwd, output, shell state, process
// names) is hostile input; everything kept is bounded.
package guest
