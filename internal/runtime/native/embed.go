package native

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

//go:generate ../../../scripts/build-embedded.sh

//go:embed embedded
var embedded embed.FS

// binary writes the embedded program to dir, named by its digest, if it is not
// there yet, and gives its path. A box goes on with the version it was made with.
func binary(dir, name string) (string, error) {
	data, err := embedded.ReadFile("embedded/" + name + ".bin")
	if errors.Is(err, fs.ErrNotExist) {
		return "", &errdefs.Error{Class: errdefs.Infrastructure, Reason: errdefs.Unavailable, Scope: errdefs.ScopeNode,
			Object: name, Message: "this dsec was built without it", Remedy: "build with make, not with go build alone"}
	} else if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, name+"-"+hex.EncodeToString(sum[:6]))
	if st, err := os.Stat(path); err == nil && st.Size() == int64(len(data)) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(dir, "."+name+"-")
	if err != nil {
		return "", err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return "", err
	}
	return path, nil
}
