// Package mcp serves boxes over the Model Context Protocol: an agent's host
// connects, by standard streams or by HTTP, and its agent gets tools to make
// sessions, run commands in them, and read and write their files.
//
// What a connection made ends with it, unless its create said keep. While the
// connection lives its sessions are kept from being taken for idle, so that an
// agent may think for as long as it needs; their max_runtime holds all the same.
//
// The package is a client of the public API: it holds no rights of its own. By
// HTTP every caller brings an API key, and acts in that key's project.
package mcp
