// Package docs holds the documents that the program itself shows.
package docs

import _ "embed"

// SpecSchema is the JSON Schema of a spec file.
//
//go:embed spec.schema.json
var SpecSchema []byte
