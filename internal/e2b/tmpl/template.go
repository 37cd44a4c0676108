package tmpl

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
)

// described is a template on the wire.
type described struct {
	Template string     `json:"templateID"`
	Build    string     `json:"buildID"`
	CPU      int        `json:"cpuCount"`
	MemoryMB int64      `json:"memoryMB"`
	DiskMB   int64      `json:"diskSizeMB"`
	Public   bool       `json:"public"`
	Aliases  []string   `json:"aliases"`
	Names    []string   `json:"names"`
	Created  time.Time  `json:"createdAt"`
	Updated  time.Time  `json:"updatedAt"`
	By       *struct{}  `json:"createdBy"`
	LastUsed *time.Time `json:"lastSpawnedAt"`
	Uses     int        `json:"spawnCount"`
	Builds   int        `json:"buildCount"`
	Envd     string     `json:"envdVersion"`
	Status   string     `json:"buildStatus"`
}

// sizes are what sessions of a build get unless they say otherwise.
func sizes(b *build.Build) (cpu int, memoryMB, diskMB int64) {
	s := spec.Sandbox{CPULimit: b.Request.CPU, MemLimit: spec.Bytes(b.Request.Memory)}
	s.FS.WritableSizeLimit = spec.Bytes(b.Request.Disk)
	s = spec.Resolve(s, spec.Sandbox{})
	return int(s.CPULimit), int64(s.MemLimit) / mib, int64(s.FS.WritableSizeLimit) / mib
}

func describe(t *build.Template, builds []*build.Build) described {
	d := described{Template: t.ID, Public: t.Public, Aliases: []string{t.Alias}, Names: []string{t.Alias}, Created: t.Created, Updated: t.Updated,
		Uses: t.Uses, Builds: t.Builds, Envd: e2b.EnvdVersion, Status: string(build.Waiting)}
	if !t.LastUsed.IsZero() {
		d.LastUsed = &t.LastUsed
	}
	if len(builds) > 0 {
		d.Status = statusOf(builds[0].Status)
		d.CPU, d.MemoryMB, d.DiskMB = sizes(builds[0])
	}
	for _, b := range builds {
		if b.Status == build.Ready {
			d.Build = b.ID
			d.CPU, d.MemoryMB, d.DiskMB = sizes(b)
			break
		}
	}
	return d
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	c := caller(r)
	if team := r.URL.Query().Get("teamID"); team != "" && team != c.Project {
		return errdefs.Policyf(errdefs.Forbidden, "team "+team, "leave it out: the API key tells the project", "the key belongs to project %s", c.Project)
	}
	all := h.builds.List(c.Project)
	if r.URL.Path == "/v2/templates" {
		limit, err := number(r, "limit", maxPage, 1, maxPage)
		if err != nil {
			return err
		}
		from, err := number(r, "nextToken", 0, 0, 1<<30)
		if err != nil {
			return err
		}
		from = min(from, len(all))
		if end := from + limit; end < len(all) {
			w.Header().Set("X-Next-Token", strconv.Itoa(end))
			all = all[:end]
		}
		all = all[from:]
	}
	out := []described{}
	for _, t := range all {
		builds, err := h.builds.Builds(c.Project, t.ID)
		if err != nil {
			continue // deleted meanwhile
		}
		out = append(out, describe(t, builds))
	}
	e2b.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	project := caller(r).Project
	limit, err := number(r, "limit", maxPage, 1, maxPage)
	if err != nil {
		return err
	}
	t, err := h.builds.Get(project, r.PathValue("id"))
	if err != nil {
		return err
	}
	builds, err := h.builds.Builds(project, t.ID)
	if err != nil {
		return err
	}
	type built struct {
		ID       string     `json:"buildID"`
		Status   string     `json:"status"`
		Created  time.Time  `json:"createdAt"`
		Updated  time.Time  `json:"updatedAt"`
		Finished *time.Time `json:"finishedAt,omitempty"`
		CPU      int        `json:"cpuCount"`
		MemoryMB int64      `json:"memoryMB"`
		DiskMB   int64      `json:"diskSizeMB"`
		Envd     string     `json:"envdVersion"`
	}
	out := struct {
		described
		List []built `json:"builds"`
	}{describe(t, builds), []built{}}
	for _, b := range builds[:min(limit, len(builds))] {
		one := built{ID: b.ID, Status: statusOf(b.Status), Created: b.Created, Updated: b.Updated, Envd: e2b.EnvdVersion}
		one.CPU, one.MemoryMB, one.DiskMB = sizes(b)
		if b.Status.Done() {
			one.Finished = &b.Finished
		}
		out.List = append(out.List, one)
	}
	e2b.WriteJSON(w, http.StatusOK, out)
	return nil
}
