package egress

import "crypto/tls"

// Credential is a header that the node adds to requests to the hosts of rules that name it.
type Credential struct {
	// Header is its name, Value its whole value, the scheme included: "Bearer …".
	Header, Value string
}

// String keeps the value out of logs.
func (c Credential) String() string { return c.Header + ": (secret)" }

// GoString keeps the value out of logs.
func (c Credential) GoString() string { return c.String() }

// Credentials knows the secrets of projects. It must not block for long: it is asked at every
// connection that uses one.
type Credentials interface {
	// Credential gives a project's secret by its name.
	Credential(project, name string) (Credential, bool)
	// Certificate makes the certificate of a host, signed by the project's authority, which the project's boxes
	// trust. It is used for hosts of rules that name a credential, and for refused names, whose client is told why
	// by the node itself.
	Certificate(project, host string) (*tls.Certificate, error)
}
