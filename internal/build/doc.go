// Package build runs builds of templates in the background and keeps what projects call them: an
// alias of a project means a template, whose tags mean versions of it in the node's template store.
//
// A project makes a template by its first request for an alias, and a version by each build. Several
// builds of one alias may run at once: each is its own, and the last to finish gets the tags. An
// alias belongs to the project that made it; another project's of the same name is another template.
//
// On disk, below Config.Dir, replaced whole at each change, so that kill -9 leaves the state before or after:
//
//	templates/<id>.json         alias, tags, defaults
//	builds/<id>.json, <id>.log  a build and what it said, one JSON object a line
//	uploads/<project>/<hash>    archives for COPY, removed when unused for a week
//	images/<name>.json          which version an image reference means
//
// A build that a killed server left is in error after the next start; its half-made layers are gone.
package build

import (
	"time"

	"github.com/dsec-platform/dsec/internal/template"
)

// Status of a build.
type Status string

const (
	Requested Status = "requested" // nobody has said what to build
	Waiting   Status = "waiting"   // for its turn
	Building  Status = "building"
	Ready     Status = "ready"
	Failed    Status = "error"
)

// Done tells whether nothing will change any more.
func (s Status) Done() bool { return s == Ready || s == Failed }

// DefaultTag is what a build gets that asks for no tag, and what a bare name means.
const DefaultTag = "default"

// Template is what a project calls by an alias. Read-only copy.
type Template struct {
	ID       string         `json:"id"` // also its name in the node's template store
	Project  string         `json:"project"`
	Alias    string         `json:"alias"`
	Public   bool           `json:"public,omitempty"` // other projects may use it by its id
	Tags     map[string]Tag `json:"tags,omitempty"`
	Created  time.Time      `json:"created"`
	Updated  time.Time      `json:"updated"`
	Builds   int            `json:"builds"` // ever asked for
	Uses     int            `json:"uses"`   // creates that named it
	LastUsed time.Time      `json:"last_used,omitzero"`
}

// Tag names a finished build of a template.
type Tag struct {
	Build string    `json:"build"`
	Ref   string    `json:"ref"` // name@version in the node's template store
	At    time.Time `json:"at"`
}

// Build is one build. Read-only copy.
type Build struct {
	ID       string    `json:"id"`
	Template string    `json:"template"`
	Project  string    `json:"project"`
	Status   Status    `json:"status"`
	Tags     []string  `json:"tags"`
	Ref      string    `json:"ref,omitempty"` // when ready
	Reason   string    `json:"reason,omitempty"`
	Step     int       `json:"step,omitempty"`  // that failed: 0 the source, then the steps, one more the start command
	Steps    int       `json:"steps,omitempty"` // how many it has
	Request  Request   `json:"request"`
	Digest   string    `json:"digest,omitempty"` // of what was started
	Created  time.Time `json:"created"`
	Updated  time.Time `json:"updated"`
	Finished time.Time `json:"finished,omitzero"`
}

// Request asks for a build of a name; Recipe says later what it is.
type Request struct {
	Name   string   `json:"name"` // alias, or alias:tag
	Tags   []string `json:"tags,omitempty"`
	CPU    float64  `json:"cpu,omitempty"`    // cores of its sessions
	Memory int64    `json:"memory,omitempty"` // bytes
	Disk   int64    `json:"disk,omitempty"`   // bytes that a session may write
	// Dockerfile and the commands of a start are kept for a caller that starts the build without saying them again.
	Dockerfile string `json:"dockerfile,omitempty"`
	Start      string `json:"start,omitempty"`
	Ready      string `json:"ready,omitempty"`
}

// Recipe is what to build: an image or a template, then steps.
type Recipe struct {
	Image string
	Login *template.Login // at the image's registry
	// Template is what Resolve knows.
	Template  string
	Platform  string
	User, Cwd string // where the steps begin, and the template's own; empty: the base's
	Steps     []template.Step
	Start     template.StartCommand
	Fresh     bool     // run steps again though their results are kept
	Notes     []string // for the log
	// Asked is all of it as it was sent, secrets included: the same build may be started twice by the same.
	Asked      []byte
	Privileged bool // the operator's: registries are asked with the node's own credentials
}

// Entry is a line of a build's log.
type Entry struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"` // debug, info, warn, error
	Message string    `json:"message"`
	Step    int       `json:"step"`
}

// Who asks.
type Who struct {
	Project  string
	Operator bool
}

// Limits of a service.
const (
	maxUnfinished  = 20       // builds of a project that wait or run
	maxTemplates   = 1000     // of a project
	maxTags        = 100      // of a template
	keepBuilds     = 20       // finished ones of a template whose record is kept
	maxLogEntries  = 20_000   // of a build
	maxLogBytes    = 4 << 20  // of a build
	maxUpload      = 4 << 30  // bytes of one archive
	maxUploads     = 16 << 30 // bytes of a project's archives
	uploadLife     = 7 * 24 * time.Hour
	requestLife    = 24 * time.Hour // of a request that nobody starts
	imageLife      = 7 * 24 * time.Hour
	imageRefresh   = 10 * time.Minute // how old a registry's answer about a tag may be
	buildLimit     = 2 * time.Hour
	defaultRunning = 2
	MaxSteps       = 500
)
