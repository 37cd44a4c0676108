package store

import (
	"context"
	"encoding/json"

	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// SetNetwork keeps the network that took the place of a session's, and returns when that is durable.
func (s *Store) SetNetwork(ctx context.Context, id string, n *spec.Network) error {
	return s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		row, err := q.GetSession(ctx, id)
		if err != nil {
			if isNoRows(err) {
				err = notFound("session "+id, "")
			}
			return err
		}
		var sb spec.Sandbox
		if err := json.Unmarshal([]byte(row.Spec), &sb); err != nil {
			return err
		}
		sb.Network = *n
		text, err := json.Marshal(&sb)
		if err != nil {
			return err
		}
		changed, err := q.SetSpec(ctx, db.SetSpecParams{ID: id, Spec: string(text)})
		return one(changed, err, notFound("session "+id, ""))
	})
}
