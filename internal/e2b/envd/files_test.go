package envd

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/dsec-platform/dsec/gen/filesystem"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// form makes a multipart body of files by path.
func form(t *testing.T, files ...string) (body *bytes.Buffer, kind string) {
	t.Helper()
	body = &bytes.Buffer{}
	w := multipart.NewWriter(body)
	for i := 0; i < len(files); i += 2 {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", `form-data; name="file"; filename="`+files[i]+`"`)
		p, err := w.CreatePart(h)
		must(t, err)
		_, err = io.WriteString(p, files[i+1])
		must(t, err)
	}
	must(t, w.Close())
	return body, w.FormDataContentType()
}

func zipped(s string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	z.Close()
	return b.String()
}

func TestUpload(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	body, kind := form(t, dir+"/new/a.txt", "A", dir+"/b ü.txt", "B")
	res, text := b.do(t, "POST", "/files?username="+b.user, body, "Content-Type", kind)
	var got []written
	must(t, json.Unmarshal([]byte(text), &got))
	if res.StatusCode != 200 || len(got) != 2 || got[0].Path != dir+"/new/a.txt" || got[0].Name != "a.txt" || got[0].Type != "file" || got[0].Metadata != nil || got[1].Name != "b ü.txt" {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	if data, _ := os.ReadFile(dir + "/b ü.txt"); string(data) != "B" {
		t.Errorf("%q", data)
	}
	// The query's path counts more than the form's.
	body, kind = form(t, "ignored", "C")
	if res, text = b.do(t, "POST", "/files?path="+url.QueryEscape(dir+"/c"), body, "Content-Type", kind); res.StatusCode != 200 {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	for _, tc := range [][]string{{"raw", "plain", ""}, {"zip", zipped("plain"), "gzip"}, {"empty", "", ""}} {
		res, text = b.do(t, "POST", "/files?path="+dir+"/"+tc[0], strings.NewReader(tc[1]), "Content-Type", "application/octet-stream", "Content-Encoding", tc[2])
		data, _ := os.ReadFile(dir + "/" + tc[0])
		if want := map[bool]string{true: "", false: "plain"}[tc[0] == "empty"]; res.StatusCode != 200 || string(data) != want {
			t.Errorf("%v: %d %s %q", tc, res.StatusCode, text, data)
		}
	}
	twice, twiceKind := form(t, dir+"/x", "1", dir+"/x", "2")
	nameless, namelessKind := form(t, "", "1")
	octets := "application/octet-stream"
	for name, tc := range map[string]struct {
		query, body, kind, encoding string
		status                      int
	}{
		"directory":  {"?path=" + dir, "x", octets, "", 400},
		"no path":    {"", "x", octets, "", 400},
		"kind":       {"?path=x", "x", "text/plain", "", 400},
		"no kind":    {"?path=x", "x", "", "", 400},
		"boundary":   {"", "x", "multipart/form-data", "", 400},
		"not a form": {"", "x", "multipart/form-data; boundary=x", "", 400},
		"twice":      {"", twice.String(), twiceKind, "", 400},
		"nameless":   {"", nameless.String(), namelessKind, "", 400},
		"encoding":   {"?path=" + dir + "/x", "x", octets, "br", 400},
		"not gzip":   {"?path=" + dir + "/x", "x", octets, "gzip", 400},
		"half gzip":  {"?path=" + dir + "/x", zipped("hello")[:15], octets, "gzip", 400},
		"user":       {"?path=" + dir + "/x&username=no-such-user", "x", octets, "", 401},
		"long path":  {"?path=/" + strings.Repeat("x", 5000), "x", octets, "", 400},
		"long name":  {"?path=/tmp/" + strings.Repeat("x", 300), "x", octets, "", 400},
		"nul":        {"?path=/tmp/%00", "x", octets, "", 400},
		"unknown":    {"?path=/tmp/x&mode=7", "x", octets, "", 400},
		"two paths":  {"?path=/tmp/x&path=/tmp/y", "x", octets, "", 400},
		"a file":     {"?path=" + dir + "/raw/x", "x", octets, "", 400},
	} {
		headers := []string{"Content-Type", tc.kind, "Content-Encoding", tc.encoding}
		res, text := b.do(t, "POST", "/files"+tc.query, strings.NewReader(tc.body), headers...)
		var e struct {
			Code    int
			Message string
		}
		if res.StatusCode != tc.status || json.Unmarshal([]byte(text), &e) != nil || e.Code != tc.status || e.Message == "" {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
}

// TestMetadata: it is of the file, replaced as a whole, and other tools see it.
func TestMetadata(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	if err := unix.Setxattr(dir, "user.e2b.probe", nil, 0); err != nil {
		t.Skipf("the directory of tests keeps no attributes: %v", err)
	}
	put := func(want int, headers ...string) string {
		t.Helper()
		res, text := b.do(t, "POST", "/files?path="+dir+"/f", strings.NewReader("x"), append([]string{"Content-Type", "application/octet-stream"}, headers...)...)
		if res.StatusCode != want {
			t.Errorf("%v: %d %s", headers, res.StatusCode, text)
		}
		return text
	}
	if text := put(200, "X-Metadata-Author", "me", "X-Metadata-Two-Words", "a=b c"); !strings.Contains(text, `"metadata":{"author":"me","two-words":"a=b c"}`) {
		t.Errorf("%s", text)
	}
	value := make([]byte, 10)
	if n, err := unix.Getxattr(dir+"/f", "user.e2b.author", value); err != nil || string(value[:n]) != "me" {
		t.Errorf("%q %v", value, err)
	}
	must(t, unix.Setxattr(dir+"/f", "user.other", []byte("x"), 0))
	list, err := b.files().ListDir(b.call(t), &pb.ListDirRequest{Path: dir})
	if err != nil || fmt.Sprint(list.GetEntries()[0].GetMetadata()) != "map[author:me two-words:a=b c]" {
		t.Errorf("%v %v", list, err)
	}
	put(200, "X-Metadata-New", "1")
	if st, err := b.files().Stat(b.call(t), &pb.StatRequest{Path: dir + "/f"}); err != nil || fmt.Sprint(st.GetEntry().GetMetadata()) != "map[new:1]" {
		t.Errorf("%v %v", st, err)
	}
	put(200)
	if st, err := b.files().Stat(b.call(t), &pb.StatRequest{Path: dir + "/f"}); err != nil || len(st.GetEntry().GetMetadata()) > 0 {
		t.Errorf("%v %v", st, err)
	}
	if n, err := unix.Getxattr(dir+"/f", "user.other", value); err != nil || n != 1 {
		t.Errorf("another tool's attribute is gone: %v", err)
	}
	put(400, "X-Metadata-A", "\xff")
	put(413, "X-Metadata-A", strings.Repeat("x", 9000))
	put(400, "X-Metadata-"+strings.Repeat("a", 300), "x")
}

func TestDownload(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	want := strings.Repeat("0123456789", 100_000)
	must(t, os.WriteFile(dir+"/f", []byte(want), 0o600))
	must(t, os.WriteFile(dir+"/page.html", []byte("<script>"), 0o600))
	must(t, os.WriteFile(dir+"/empty", nil, 0o600))
	must(t, os.Symlink("f", dir+"/link"))
	get := func(query string, headers ...string) (*http.Response, string) {
		t.Helper()
		return b.do(t, "GET", "/files?"+query, nil, append([]string{"Accept-Encoding", "gzip, deflate, br"}, headers...)...)
	}
	for _, name := range []string{"f", "link"} {
		if res, text := get("path=" + dir + "/" + name); res.StatusCode != 200 || text != want || res.ContentLength != int64(len(want)) {
			t.Errorf("%s: %d, %d bytes", name, res.StatusCode, len(text))
		}
	}
	if res, text := get("path="+dir+"/f", "Range", "bytes=5-8"); res.StatusCode != 206 || text != "5678" {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	if res, text := get("path="+dir+"/f", "Accept-Encoding", "gzip"); res.StatusCode != 200 || res.Header.Get("Content-Encoding") != "gzip" || len(text) > len(want)/10 {
		t.Errorf("%d, %d bytes, %v", res.StatusCode, len(text), res.Header)
	} else if z, err := gzip.NewReader(strings.NewReader(text)); err != nil {
		t.Error(err)
	} else if plain, err := io.ReadAll(z); err != nil || string(plain) != want {
		t.Errorf("%d bytes %v", len(plain), err)
	}
	if res, text := get("path=" + dir + "/empty"); res.StatusCode != 200 || text != "" || res.ContentLength != 0 {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	if res, _ := get("path=" + dir + "/page.html"); res.Header.Get("Content-Type") != "application/octet-stream" || res.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v: a box's page on this server's origin", res.Header)
	}
	for query, status := range map[string]int{"path=" + dir + "/none": 404, "path=" + dir: 400, "path=/dev/null": 400, "": 400, "path=" + dir + "/f&username=no-such-user": 401, "%zz": 400} {
		if res, text := get(query); res.StatusCode != status {
			t.Errorf("%s: %d %s", query, res.StatusCode, text)
		}
	}
	b.guest = unreachable(errdefs.Conflict)
	if res, text := get("path=" + dir + "/f"); res.StatusCode != 502 || !strings.Contains(text, "was not found") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// TestSignedURLs: the sandbox's token or a signature opens /files, nothing else does.
func TestSignedURLs(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(t.TempDir(), "f ü")
	must(t, os.WriteFile(file, []byte("x"), 0o600))
	now := time.Now().Unix()
	at := func(n int64) string { return strconv.FormatInt(n, 10) }
	query := func(path, user, signature, expiry string) string {
		v := url.Values{"path": {path}, "signature": {signature}}
		if user != "" {
			v.Set("username", user)
		}
		if expiry != "" {
			v.Set("signature_expiration", expiry)
		}
		return "/files?" + v.Encode()
	}
	for name, tc := range map[string]struct {
		method, url string
		status      int
	}{
		"read":           {"GET", query(file, "", sign(file, "read", "", testToken, ""), ""), 200},
		"as somebody":    {"GET", query(file, b.user, sign(file, "read", b.user, testToken, ""), ""), 200},
		"for a while":    {"GET", query(file, "", sign(file, "read", "", testToken, at(now+100)), at(now+100)), 200},
		"expired":        {"GET", query(file, "", sign(file, "read", "", testToken, at(now-2)), at(now-2)), 401},
		"later expiry":   {"GET", query(file, "", sign(file, "read", "", testToken, at(now+100)), at(now+999)), 401},
		"no expiry":      {"GET", query(file, "", sign(file, "read", "", testToken, at(now+100)), ""), 401},
		"odd expiry":     {"GET", query(file, "", sign(file, "read", "", testToken, "x"), "x"), 401},
		"other file":     {"GET", query(file, "", sign(file+"x", "read", "", testToken, ""), ""), 401},
		"other user":     {"GET", query(file, b.user, sign(file, "read", "", testToken, ""), ""), 401},
		"other use":      {"GET", query(file, "", sign(file, "write", "", testToken, ""), ""), 401},
		"other token":    {"GET", query(file, "", sign(file, "read", "", "x", ""), ""), 401},
		"nothing":        {"GET", query(file, "", "", ""), 401},
		"write by read":  {"POST", query(file, "", sign(file, "read", "", testToken, ""), ""), 401},
		"write by write": {"POST", query(file, "", sign(file, "write", "", testToken, ""), ""), 200},
	} {
		res, text := b.do(t, tc.method, tc.url, strings.NewReader("y"), headerToken, "", "Content-Type", "application/octet-stream")
		if res.StatusCode != tc.status {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
	// A wrong token is refused though the signature is right.
	if res, text := b.do(t, "GET", query(file, "", sign(file, "read", "", testToken, ""), ""), nil, headerToken, "wrong"); res.StatusCode != 401 {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	// As SDKs sign: unpadded base64 of SHA-256.
	if got := sign("/a", "read", "user", "token", "1700000000"); got != "v1_UCn9YiXOlfvWihAKDutW9QI8YP12zuWXKsfbmDG4JrA" {
		t.Errorf("%s", got)
	}
}

func TestPlain(t *testing.T) {
	b := newBench(t)
	if res, text := b.do(t, "GET", "/health", nil); res.StatusCode != 204 || text != "" {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	if res, text := b.do(t, "GET", "/health", nil, headerToken, ""); res.StatusCode != 401 {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	if res, text := b.do(t, "GET", "/other", nil); res.StatusCode != 404 || !strings.Contains(text, `"code":404`) {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	b.guest = unreachable(errdefs.BoxGone)
	if res, text := b.do(t, "GET", "/health", nil); res.StatusCode != 502 || !strings.Contains(text, "was not found") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}
