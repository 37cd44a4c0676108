package template

import (
	"context"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// reference reads an image's name, and puts a mirror in its registry's place.
func (s *Local) reference(src Source) (name.Reference, error) {
	var opts []name.Option
	if src.Insecure {
		opts = append(opts, name.Insecure)
	}
	ref, err := name.ParseReference(src.Ref, opts...)
	if err != nil {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "image "+src.Ref, "write [REGISTRY/]NAME[:TAG|@DIGEST]", "not an image reference: %w", err)
	}
	host := ref.Context().RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	if allowed := s.opts.Registries.Allowed; len(allowed) > 0 && !slices.Contains(allowed, host) {
		return nil, errdefs.Policyf(errdefs.Forbidden, "image "+src.Ref, "use an image of "+strings.Join(allowed, ", "), "the operator does not allow the registry %s", host)
	}
	mirror, ok := s.opts.Registries.Mirrors[host]
	if !ok {
		return ref, nil
	}
	at := ":"
	if _, ok := ref.(name.Digest); ok {
		at = "@"
	}
	mirrored, err := name.ParseReference(mirror+"/"+ref.Context().RepositoryStr()+at+ref.Identifier(), opts...)
	if err != nil {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "registry_mirrors: "+host, "write HOST[:PORT]", "%q is no registry: %w", mirror, err)
	}
	return mirrored, nil
}

func (s *Local) fromRegistry(ctx context.Context, src Source, p v1.Platform) (v1.Image, error) {
	ref, err := s.reference(src)
	if err != nil {
		return nil, err
	}
	img, err := remote.Image(ref, append(access(ctx, src), remote.WithPlatform(p))...)
	if err != nil {
		return nil, registryError(src.Ref, err)
	}
	return img, nil
}

// access is who asks a registry, and until when.
func access(ctx context.Context, src Source) []remote.Option {
	auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if l := src.Login; l != nil && *l == (Login{}) {
		auth = remote.WithAuth(authn.Anonymous)
	} else if l != nil {
		auth = remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: l.User, Password: l.Password}))
	}
	return []remote.Option{remote.WithContext(ctx), auth}
}

// registryError tells a wrong request from a registry that is away.
func registryError(ref string, err error) error {
	object := "image " + ref
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
	e.Remedy = "check the network, or import an image archive instead"
	return e
}

// ImageDigest asks the registry for the digest that a reference means now: of an index, if it is one.
func (s *Local) ImageDigest(ctx context.Context, src Source) (string, error) {
	ref, err := s.reference(src)
	if err != nil {
		return "", err
	}
	d, err := remote.Head(ref, access(ctx, src)...)
	if err != nil {
		return "", registryError(src.Ref, err)
	}
	return d.Digest.String(), nil
}
