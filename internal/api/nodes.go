package api

import (
	"context"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// nodes serves NodeService.
type nodes struct{ *API }

func (n *nodes) GetHealth(context.Context, *dsecv1.GetHealthRequest) (*dsecv1.GetHealthResponse, error) {
	return &dsecv1.GetHealthResponse{Ready: n.ready.Load() && !n.refusing(), Draining: n.refusing(), Version: n.cfg.Version}, nil
}

func (n *nodes) GetStats(ctx context.Context, _ *dsecv1.GetStatsRequest) (*dsecv1.GetStatsResponse, error) {
	if n.cfg.NodeAPI == nil {
		return nil, errNoNode()
	}
	s := n.cfg.NodeAPI.Stats(ctx)
	return &dsecv1.GetStatsResponse{
		MemTotal: s.MemTotal, MemPromised: s.MemPromised, CpuTotal: s.CPUTotal, CpuPromised: s.CPUPromised,
		Boxes: int32(s.Boxes), Pooled: int32(s.Pooled), PoolTarget: int32(s.PoolTarget), PoolHits: s.PoolHits, PoolMisses: s.PoolMisses,
		Creating: int32(s.Creating), ColdReasons: s.ColdReasons, OrphansRemoved: s.OrphansRemoved,
	}, nil
}

func (n *nodes) SetDraining(ctx context.Context, q *dsecv1.SetDrainingRequest) (*dsecv1.SetDrainingResponse, error) {
	if err := operatorOnly(ctx, "draining a node"); err != nil {
		return nil, err
	}
	if n.cfg.NodeAPI == nil {
		return nil, errNoNode()
	}
	n.cfg.NodeAPI.SetDraining(q.GetDraining())
	n.drained.Store(q.GetDraining())
	return &dsecv1.SetDrainingResponse{}, nil
}

func errNoNode() error {
	return errdefs.Userf(errdefs.Unsupported, "node", "ask a server that has one", "this server has no node of its own")
}

// keys serves KeyService.
type keys struct{ *API }

func (k *keys) CreateKey(ctx context.Context, q *dsecv1.CreateKeyRequest) (*dsecv1.CreateKeyResponse, error) {
	if err := operatorOnly(ctx, "making a key"); err != nil {
		return nil, err
	}
	project := q.GetProject()
	if project == "" {
		project = operatorProject
	}
	if err := checkProject("field project", project); err != nil {
		return nil, err
	}
	if err := checkText("name", q.GetName(), 64); err != nil {
		return nil, err
	}
	key, secret, err := k.cfg.Keys.CreateKey(ctx, project, q.GetName())
	if err != nil {
		return nil, err
	}
	return &dsecv1.CreateKeyResponse{Key: wireKey(key), Secret: secret}, nil
}

func (k *keys) ListKeys(ctx context.Context, q *dsecv1.ListKeysRequest) (*dsecv1.ListKeysResponse, error) {
	if err := operatorOnly(ctx, "listing keys"); err != nil {
		return nil, err
	}
	if p := q.GetProject(); p != "" {
		if err := checkProject("field project", p); err != nil {
			return nil, err
		}
	}
	all, err := k.cfg.Keys.ListKeys(ctx, q.GetProject())
	if err != nil {
		return nil, err
	}
	out := &dsecv1.ListKeysResponse{Keys: make([]*dsecv1.Key, len(all))}
	for i, key := range all {
		out.Keys[i] = wireKey(key)
	}
	return out, nil
}

func (k *keys) RevokeKey(ctx context.Context, q *dsecv1.RevokeKeyRequest) (*dsecv1.RevokeKeyResponse, error) {
	if err := operatorOnly(ctx, "revoking a key"); err != nil {
		return nil, err
	}
	if q.GetId() == "" || len(q.GetId()) > 128 {
		return nil, bad("id", "give a key's id as ListKeys shows it", "%q is not a key's id", clip(q.GetId()))
	}
	return &dsecv1.RevokeKeyResponse{}, k.cfg.Keys.RevokeKey(ctx, q.GetId())
}
