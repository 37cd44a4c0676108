// Package ports passes HTTP requests and WebSockets on to servers inside a box, through the
// guest's dial. It decides nothing about who may: the facade does.
//
// What it keeps apart is two origins. A server in a box is written by an agent; it must not learn
// the keys and tokens that open the box or the platform, and must not leave anything in a browser
// for other boxes or for the platform's own address.
package ports
