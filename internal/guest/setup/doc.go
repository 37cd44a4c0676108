// Package setup is the guest's side of making a box: it takes setup
// connections (guestproto.Setup), attaches the mounts that the daemon built,
// pivots into the root, and keeps the Settings that every operation starts from.
//
// A guest calls Harden first, then Serve for each setup connection. The first
// message must be a boot; Booted is closed when the box stands. At most one
// claim follows.
package setup
