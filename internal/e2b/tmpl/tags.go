package tmpl

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// alias tells whether the caller can start sandboxes by an alias: one of its own, or a template of the node.
func (h *Handler) alias(w http.ResponseWriter, r *http.Request) error {
	c, name := caller(r), r.PathValue("alias")
	bare, tag, _ := strings.Cut(name, ":")
	if t, err := h.builds.Get(c.Project, bare); err == nil {
		if tag != "" {
			if _, ok := t.Tags[tag]; !ok {
				return errdefs.Userf(errdefs.NotFound, "template "+bare, "list its tags", "it has no tag %.40q", tag)
			}
		}
		e2b.WriteJSON(w, http.StatusOK, map[string]any{"templateID": t.ID, "public": t.Public})
		return nil
	}
	got, err := h.builds.Known(r.Context(), build.Who{Project: c.Project, Operator: c.Operator}, name)
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusOK, map[string]any{"templateID": got, "public": true})
	return nil
}

func (h *Handler) tag(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := read(r, &q); err != nil {
		return err
	}
	t, err := h.builds.Tag(caller(r).Project, q.Target, q.Tags)
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusCreated, map[string]any{"buildID": t.Build, "tags": q.Tags})
	return nil
}

func (h *Handler) untag(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := read(r, &q); err != nil {
		return err
	}
	if err := h.builds.Untag(caller(r).Project, q.Name, q.Tags); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *Handler) tags(w http.ResponseWriter, r *http.Request) error {
	t, err := h.builds.Get(caller(r).Project, r.PathValue("id"))
	if err != nil {
		return err
	}
	type tag struct {
		Name    string    `json:"tag"`
		Build   string    `json:"buildID"`
		Created time.Time `json:"createdAt"`
	}
	out := []tag{}
	for name, is := range t.Tags {
		out = append(out, tag{name, is.Build, is.At})
	}
	slices.SortFunc(out, func(a, b tag) int { return strings.Compare(a.Name, b.Name) })
	e2b.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (h *Handler) countTags(w http.ResponseWriter, r *http.Request) error {
	t, err := h.builds.Get(caller(r).Project, r.PathValue("id"))
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusOK, map[string]int{"count": len(t.Tags)})
	return nil
}

func (h *Handler) hasTag(w http.ResponseWriter, r *http.Request) error {
	t, err := h.builds.Get(caller(r).Project, r.PathValue("id"))
	if err != nil {
		return err
	}
	_, ok := t.Tags[r.URL.Query().Get("tag")]
	e2b.WriteJSON(w, http.StatusOK, map[string]bool{"exists": ok})
	return nil
}
