package tmpl

import (
	"net/http"

	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template/dockerfile"
)

const mib = 1 << 20

// requestBody is what the three requests for a build have together.
type requestBody struct {
	Name          string   `json:"name"`
	Alias         string   `json:"alias"`
	Tags          []string `json:"tags"`
	Team          string   `json:"teamID"`
	CPU           int      `json:"cpuCount"`
	MemoryMB      int64    `json:"memoryMB"`
	MinFreeDiskMB int64    `json:"minFreeDiskMb"`
	// Of the oldest request alone.
	Dockerfile string `json:"dockerfile"`
	StartCmd   string `json:"startCmd"`
	ReadyCmd   string `json:"readyCmd"`
}

const (
	maxCPU      = 1024
	maxMemoryMB = 64 << 20
)

// ask makes the build that a body wants.
func (h *Handler) ask(r *http.Request, q *requestBody) (*build.Template, *build.Build, error) {
	c := caller(r)
	if q.Team != "" && q.Team != c.Project {
		return nil, nil, errdefs.Policyf(errdefs.Forbidden, "team "+q.Team, "leave it out: the API key tells the project", "the key belongs to project %s", c.Project)
	}
	name := q.Name
	if name == "" {
		name = q.Alias
	}
	if q.CPU < 0 || q.CPU > maxCPU || q.MemoryMB < 0 || q.MemoryMB > maxMemoryMB || q.MinFreeDiskMB < 0 || q.MinFreeDiskMB > maxMemoryMB {
		return nil, nil, errdefs.Userf(errdefs.InvalidArgument, "template "+name, "give cpuCount in cores and memoryMB, minFreeDiskMb in MiB", "a size is out of range")
	}
	return h.builds.Request(r.Context(), c.Project, build.Request{
		Name: name, Tags: q.Tags, CPU: float64(q.CPU), Memory: q.MemoryMB * mib, Disk: q.MinFreeDiskMB * mib,
		Dockerfile: q.Dockerfile, Start: q.StartCmd, Ready: q.ReadyCmd,
	})
}

func (h *Handler) requestV3(w http.ResponseWriter, r *http.Request) error {
	var q requestBody
	if err := read(r, &q); err != nil {
		return err
	}
	if q.Dockerfile+q.StartCmd+q.ReadyCmd != "" {
		return errdefs.Userf(errdefs.InvalidArgument, "request", "send them with the steps", "dockerfile, startCmd and readyCmd do not belong here")
	}
	t, b, err := h.ask(r, &q)
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusAccepted, struct {
		requested
		Names []string `json:"names"`
		Tags  []string `json:"tags"`
	}{requestedOf(t, b), []string{t.Alias}, b.Tags})
	return nil
}

type requested struct {
	Template string   `json:"templateID"`
	Build    string   `json:"buildID"`
	Public   bool     `json:"public"`
	Aliases  []string `json:"aliases"`
}

func requestedOf(t *build.Template, b *build.Build) requested {
	return requested{t.ID, b.ID, t.Public, []string{t.Alias}}
}

func (h *Handler) requestV2(w http.ResponseWriter, r *http.Request) error {
	var q requestBody
	if err := read(r, &q); err != nil {
		return err
	}
	if q.Dockerfile+q.StartCmd+q.ReadyCmd+q.Name != "" || len(q.Tags) > 0 {
		return errdefs.Userf(errdefs.InvalidArgument, "request", "use POST /v3/templates for names and tags", "only alias, cpuCount and memoryMB belong here")
	}
	t, b, err := h.ask(r, &q)
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusAccepted, requestedOf(t, b))
	return nil
}

// requestV1 keeps the Dockerfile until the build is started.
func (h *Handler) requestV1(w http.ResponseWriter, r *http.Request) error {
	var q requestBody
	if err := read(r, &q); err != nil {
		return err
	}
	if id := r.PathValue("id"); id != "" {
		t, err := h.builds.Get(caller(r).Project, id)
		if err != nil {
			return err
		}
		if q.Alias != "" && q.Alias != t.Alias {
			return errdefs.Userf(errdefs.Unsupported, "template "+id, "request a new template of that alias", "it cannot be given another alias")
		}
		q.Alias = t.Alias
	}
	if _, err := dockerfile.Parse([]byte(q.Dockerfile), dockerfile.Options{}); err != nil {
		return err
	}
	t, b, err := h.ask(r, &q)
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusAccepted, requestedOf(t, b))
	return nil
}

// update changes whether others may use a template.
func (h *Handler) update(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Public *bool `json:"public"`
	}
	if err := read(r, &q); err != nil {
		return err
	}
	c, id := caller(r), r.PathValue("id")
	t, err := h.builds.Get(c.Project, id)
	if err == nil && q.Public != nil {
		t, err = h.builds.SetPublic(c.Project, id, *q.Public)
	}
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusOK, map[string][]string{"names": {t.Alias}})
	return nil
}

func (h *Handler) remove(w http.ResponseWriter, r *http.Request) error {
	if err := h.builds.Delete(r.Context(), caller(r).Project, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
