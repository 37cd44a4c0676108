// Package envd serves what E2B's SDKs expect of the agent inside a sandbox: the services
// process.Process and filesystem.Filesystem over Connect with JSON, and by plain HTTP /files
// and /health. It keeps no state of its own that matters: processes are operations of the
// guest, and are found again after a restart of the server.
//
// The agent that the SDKs know runs as root. So do the file operations here (guestclient.OnBehalf):
// a user's name says whose new files are and where relative paths begin, not what may be reached.
// Processes run as the user.
//
// docs/e2b.md says what differs from the original.
package envd
