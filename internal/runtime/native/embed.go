package native

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io"
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
	src, err := embedded.Open("embedded/" + name + ".bin")
	if errors.Is(err, fs.ErrNotExist) {
		return "", &errdefs.Error{Class: errdefs.Infrastructure, Reason: errdefs.Unavailable, Scope: errdefs.ScopeNode,
			Object: name, Message: "this dsec was built without it", Remedy: "build with make, not with go build alone"}
	} else if err != nil {
		return "", err
	}
	defer src.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, src)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name+"-"+hex.EncodeToString(sum.Sum(nil)[:6]))
	if st, err := os.Stat(path); err == nil && st.Size() == size {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(dir, "."+name+"-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(tmp, io.NewSectionReader(src.(io.ReaderAt), 0, size)) // what package embed opens has it
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
