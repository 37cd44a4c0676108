package template

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// reference reads an image's name, and puts a mirror in its registry's place. Listed tells that the operator
// has named where it leads.
func (s *Local) reference(src Source) (ref name.Reference, listed bool, err error) {
	var opts []name.Option
	if src.Insecure {
		opts = append(opts, name.Insecure)
	}
	ref, err = name.ParseReference(src.Ref, opts...)
	if err != nil {
		return nil, false, errdefs.Userf(errdefs.InvalidArgument, "image "+src.Ref, "write [REGISTRY/]NAME[:TAG|@DIGEST]", "not an image reference: %w", err)
	}
	host := ref.Context().RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	allowed := s.opts.Registries.Allowed
	listed = slices.Contains(allowed, host)
	if len(allowed) > 0 && !listed {
		return nil, false, errdefs.Policyf(errdefs.Forbidden, "image "+src.Ref, "use an image of "+strings.Join(allowed, ", "), "the operator does not allow the registry %s", host)
	}
	mirror, ok := s.opts.Registries.Mirrors[host]
	if !ok {
		return ref, listed, nil
	}
	at := ":"
	if _, ok := ref.(name.Digest); ok {
		at = "@"
	}
	mirrored, err := name.ParseReference(mirror+"/"+ref.Context().RepositoryStr()+at+ref.Identifier(), opts...)
	if err != nil {
		return nil, false, errdefs.Userf(errdefs.InvalidArgument, "registry_mirrors: "+host, "write HOST[:PORT]", "%q is no registry: %w", mirror, err)
	}
	return mirrored, true, nil
}

func (s *Local) fromRegistry(ctx context.Context, src Source, p v1.Platform) (v1.Image, error) {
	ref, listed, err := s.reference(src)
	if err != nil {
		return nil, err
	}
	img, err := remote.Image(ref, append(access(ctx, src, listed), remote.WithPlatform(p))...)
	if err != nil {
		return nil, s.registryError(src.Ref, err)
	}
	return img, nil
}

// access is who asks a registry, how, and until when.
func access(ctx context.Context, src Source, listed bool) []remote.Option {
	auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if l := src.Login; l != nil && *l == (Login{}) {
		auth = remote.WithAuth(authn.Anonymous)
	} else if l != nil {
		auth = remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: l.User, Password: l.Password}))
	}
	if src.Guarded && !listed {
		return []remote.Option{remote.WithContext(ctx), auth, remote.WithTransport(guarded)}
	}
	return []remote.Option{remote.WithContext(ctx), auth}
}

// registryError tells a wrong request from a registry that is away.
func (s *Local) registryError(ref string, err error) error {
	object := "image " + ref
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return s.unresolved(object, e, err)
	}
	if e, ok := errors.AsType[*errdefs.Error](err); ok && e.Reason == errdefs.Forbidden { // by the guard
		return errdefs.Policyf(errdefs.Forbidden, object, e.Remedy, "%s: %s", e.Object, e.Message)
	}
	code := 0
	if te, ok := asTransportError(err); ok {
		code = te.StatusCode
	}
	switch {
	case code == 401 || code == 403:
		return errdefs.Userf(errdefs.Forbidden, object, "check the name; for a private image log in so that the credentials are in the Docker configuration", "the registry refused: %w", err)
	case code >= 400 && code < 500 && code != 429:
		return errdefs.Userf(errdefs.NotFound, object, "check its name and tag", "the registry does not have it: %w", err)
	}
	e := errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, object, "cannot be fetched: %w", err)
	e.Remedy = "check the name, if it is a template of the node that was meant, and the network; or import an image archive instead"
	return e
}

// unresolved is an image whose registry's name, or that of the service which the registry sends us to, leads
// nowhere: a wrong name, unless the operator chose it. The resolver's own words name the node's name servers.
func (s *Local) unresolved(object string, e *net.DNSError, err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	ours := ok && op.Op == "proxyconnect"
	for _, mirror := range s.opts.Registries.Mirrors {
		host, _, _ := strings.Cut(mirror, ":")
		ours = ours || host == e.Name
	}
	if e.IsNotFound && !ours {
		return errdefs.Userf(errdefs.NotFound, object, "check the registry's name; an image without one is of docker.io, which this server may not reach", "there is no host of the name %s", e.Name)
	}
	s.opts.Log.Warn("a registry's name cannot be resolved", "image", object, "err", err)
	why := errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, object, "the name %s cannot be resolved now", e.Name)
	why.Remedy = "try it again; the server's log says what its name servers answer"
	return why
}

// ImageDigest asks the registry for the digest that a reference means now: of an index, if it is one.
func (s *Local) ImageDigest(ctx context.Context, src Source) (string, error) {
	ref, listed, err := s.reference(src)
	if err != nil {
		return "", err
	}
	d, err := remote.Head(ref, access(ctx, src, listed)...)
	if err != nil {
		return "", s.registryError(src.Ref, err)
	}
	return d.Digest.String(), nil
}
