// Package e2b serves the E2B wire beside the product's own, so that E2B's unmodified SDKs work
// against this server. It is a facade: every call is one of control, guest or template store, and
// what those cannot do is refused in E2B's error shape; nothing is accepted and ignored.
//
// One port carries three kinds of requests, told apart by Facade.Route:
//
//	/sandboxes, /v2/sandboxes, …   the control API, by API key            this package
//	/templates, /v3/templates, …   templates and builds, by API key       package tmpl
//	header E2b-Sandbox-Id, or host <port>-<id>.<domain>: a box            package envd for EnvdPort,
//	                               by the sandbox's access token          a proxy to the box for other ports
//
// The gateway (internal/api) authenticates keys and calls Serve; internal/server composes the parts:
//
//	tokens, err := e2b.OpenTokens(dataDir)
//	boxes := e2b.NewSandboxes(control, tokens)
//	facade := e2b.New(e2b.Config{Sandboxes: boxes, Envd: envd.New(…), Templates: tmpl.New(…), …})
//
// Package envd and package tmpl import this package, never the other way round. docs/e2b.md says
// what differs from the original.
package e2b
