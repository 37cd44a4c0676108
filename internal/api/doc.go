// Package api is the gateway: it turns the wire (Connect and JSON of dsec.v1,
// plain HTTP for bytes) into calls of the control plane and of guests, and what
// they answer into the wire again.
//
// It owns what every request has in common: who calls, how often, how large, is
// it well-formed, what went wrong in words a client can act on, and how long it
// took. It keeps no state of sessions. Secrets pass through it and stay in no
// log, error or metric of it.
//
// A request's way: request id → authentication → rate limit → routing → decoding
// (unknown fields refused) → validation → handler → error and metrics.
package api
