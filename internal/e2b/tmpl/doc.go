// Package tmpl serves E2B's calls about templates: it reads their wire and asks package build.
//
// A build is requested by name (POST /v3/templates, or its predecessors), files are uploaded
// under a hash to an address that is signed, the steps start it, and its status is polled together with
// its log. The oldest form sends a Dockerfile with the request.
package tmpl
