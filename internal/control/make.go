package control

import (
	"errors"
	"maps"
	"slices"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store"
)

// chunk is how many sessions share an insert.
const chunk = 64

// make makes the sessions that r does not have yet.
func (c *Control) make(r *request, req *CreateRequest) {
	defer close(r.done)
	r.mu.Lock()
	r.onEnd = func() { c.tasks.spawn(func() { c.leave(r) }) }
	var missing []*item
	for _, it := range r.items {
		if it.live == nil && !it.isSettled {
			missing = append(missing, it)
		}
	}
	if r.left == 0 {
		r.onEnd()
	}
	r.mu.Unlock()
	if len(missing) == 0 {
		return
	}
	if err := c.mayOwn(r.ctx, r.project, req.Lease); err != nil {
		settleAll(missing, err)
		return
	}
	root, err := c.takeRoot(r.ctx, req.Template)
	if err != nil {
		settleAll(missing, err)
		return
	}
	defer c.dropRoot(root)
	code, err := c.holdCode(req.Code)
	if err != nil {
		settleAll(missing, err)
		return
	}
	defer code.drop()
	common, err := c.surround(r.project, root, req)
	if err != nil {
		settleAll(missing, err)
		return
	}
	for len(missing) > 0 {
		n := min(chunk, len(missing))
		if err := c.makeChunk(r, req, root, common, code, missing[:n]); err != nil {
			settleAll(missing[n:], err)
			return
		}
		missing = missing[n:]
	}
}

// makeChunk queues, inserts and places sessions. The boxes are made while the insert becomes
// durable. An error means that no more should be made.
func (c *Control) makeChunk(r *request, req *CreateRequest, root *root, common payload, code *code, items []*item) error {
	if r.ctx.Err() != nil {
		err := errdefs.From(r.ctx.Err())
		settleAll(items, err)
		return err
	}
	lives := make([]*live, 0, len(items))
	taken := make([]*item, 0, len(items))
	c.mu.Lock()
	if req.Lease != "" {
		// What ends a lease marks it under this lock before it looks for its sessions.
		if o := c.owners[req.Lease]; o == nil || o.ending != "" {
			err := endedMeanwhile(req.Lease, o)
			c.mu.Unlock()
			settleAll(items, err)
			return err
		}
	}
	for _, it := range items {
		id, at := c.ids.next(c.cfg.Now())
		position, err := c.queue.Offer(id)
		if err != nil {
			it.settle(CreateResult{Err: errdefs.From(err)})
			c.counters.Refused.Add(1)
			continue
		}
		rec := c.record(r, req, it.index, root.name)
		rec.Row = session.New(id, at)
		rec.Row.Lifetime, rec.Row.AtDeadline = req.Lifetime, session.Action(req.AtDeadline)
		if position == 0 {
			rec.Row, _, _ = session.Apply(rec.Row, session.Place{Node: c.cfg.NodeName}, at) // legal for a new one
		}
		l := newLive(c.ctx, rec)
		root.users++
		l.root = root
		own := common
		own.code = code.take()
		l.payload = &own
		l.items = []*item{it}
		c.live[id] = l
		lives, taken = append(lives, l), append(taken, it)
	}
	c.mu.Unlock()
	if len(lives) == 0 {
		return nil
	}
	c.counters.Created.Add(int64(len(lives)))
	inserted := c.insert(r, lives, taken)
	for _, l := range lives {
		if l.rec.Phase != session.Scheduled {
			c.counters.Queued.Add(1)
			continue
		}
		select {
		case c.placing <- struct{}{}:
			if !c.tasks.spawn(func() { c.place(l) }) {
				<-c.placing
			}
		case <-c.ctx.Done():
		}
	}
	// The next insert must not overtake the one that records the key.
	<-inserted.done
	return inserted.err
}

// insertion is an insert under way; err, valid when done is closed, spoils the rest of the request.
type insertion struct {
	done chan struct{}
	err  error
}

// insert hands the rows over; what follows happens when they are durable.
func (c *Control) insert(r *request, lives []*live, items []*item) *insertion {
	in := store.Insert{Project: r.project, Sessions: make([]*store.Session, len(lives))}
	if s := c.cfg.Scheduler; s.MaxActiveSessions > 0 {
		in.MaxLive = int64(s.MaxActiveSessions + s.QueueLength) // the queue keeps to it; other servers may not know this one's
	}
	for i, l := range lives {
		in.Sessions[i] = &l.rec
	}
	if r.key != "" && !r.recorded {
		in.Key = &store.Key{Key: r.key, Digest: r.digest, Request: r.id, Count: len(r.items), Created: r.made, Window: keyWindow}
	}
	s := &insertion{done: make(chan struct{})}
	c.store.InsertBehind(c.ctx, in, func(refused []*errdefs.Error, err error) {
		// On the writer's goroutine: nothing here waits.
		for i, l := range lives {
			if err != nil {
				l.insertErr = errdefs.From(err)
			} else if refused[i] != nil {
				l.insertErr = refused[i]
			}
			close(l.inserted)
			if l.insertErr == nil {
				items[i].accept(l)
				continue
			}
			c.counters.Refused.Add(1)
			c.tasks.spawn(func() { c.abandon(l, l.insertErr) })
		}
		if err == nil {
			r.recorded = r.key != ""
		} else if errors.Is(err, store.ErrKeyTaken) {
			s.err = errdefs.Userf(errdefs.Conflict, "idempotency key "+r.key, "send the request again", "another server is working on it")
		} else {
			s.err = err
		}
		close(s.done)
	})
	return s
}

// environment is what the box's processes get: the template's, the session's, the secrets; later ones win.
func environment(base []string, req *CreateRequest) []string {
	env := slices.Clone(base)
	for _, m := range []map[string]string{req.Env, req.Secrets} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			env = append(env, name+"="+m[name])
		}
	}
	return slices.Clip(dedupe(env)) // it is shared: nobody may append in place
}

// dedupe keeps the last of each name, in the place of the first.
func dedupe(env []string) []string {
	at := make(map[string]int, len(env))
	out := env[:0]
	for _, kv := range env {
		name := kv
		for i := range len(kv) {
			if kv[i] == '=' {
				name = kv[:i]
				break
			}
		}
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

func settleAll(items []*item, err error) {
	for _, it := range items {
		it.settle(CreateResult{Err: errdefs.From(err)})
	}
}
