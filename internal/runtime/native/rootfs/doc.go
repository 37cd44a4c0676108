// Package rootfs builds what a box sees as its file system, as detached mounts
// that are handed to the box's PID 1 by descriptor: nothing appears in the
// host's mount table, and nothing has to be unmounted when the box ends.
//
// Files on disk hold the ids of the container. Each mount is id-mapped to the
// box's own range, so layers are shared by all boxes and what a box has written
// can be a layer of any other.
//
// A Builder runs its mounts on threads of its own, because a writable overlay
// must be mounted by somebody who exists inside the id map (its file-system uid
// is the box's root), with all capabilities kept.
package rootfs
