package e2b

import (
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func TestListQuery(t *testing.T) {
	read := func(query string) (listQuery, error) {
		return readListQuery(httptest.NewRequest("GET", "/v2/sandboxes?"+query, nil))
	}
	q, err := read("state=running,paused&limit=7&order=asc&template=t&startedAfter=2026-01-02T03:04:05.678Z&nextToken=" + anID)
	if err != nil || !reflect.DeepEqual(q.states, []string{"running", "paused"}) || q.limit != 7 || !q.oldest || q.template != "t" || q.after.IsZero() || q.page != anID {
		t.Errorf("%+v %v", q, err)
	}
	if q, err := read(""); err != nil || len(q.states) != 2 || q.limit != maxPage || q.oldest {
		t.Errorf("%+v %v", q, err)
	}
	for _, bad := range []string{"state=dead", "limit=0", "limit=101", "limit=x", "order=random", "startedAfter=yesterday", "nextToken=zzz", "metadata=%25zz", "novel=1"} {
		if _, err := read(bad); err == nil || Status(err) != 400 {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestMetadataQuery: SDKs encode each name and value, then the pairs, then the parameter.
func TestMetadataQuery(t *testing.T) {
	for _, m := range []map[string]string{{"a": "b"}, {"a b": "c&d=e", "ü%": "100% +1"}, {}} {
		inner := url.Values{}
		for k, v := range m {
			inner.Set(url.PathEscape(k), url.PathEscape(v))
		}
		got, err := readMetadataQuery(inner.Encode())
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%v became %v %v", m, got, err)
		}
	}
	if got, err := readMetadataQuery("user=abc&app=my+prod%20x"); err != nil || !reflect.DeepEqual(got, map[string]string{"user": "abc", "app": "my prod x"}) {
		t.Errorf("%v %v", got, err)
	}
}

func FuzzMetadataQuery(f *testing.F) {
	f.Add("a%2520b=c%2526d&x=y")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := readMetadataQuery(s)
		if err == nil && len(m) > strings.Count(s, "&")+1 {
			t.Fatalf("%q became %v", s, m)
		}
	})
}
