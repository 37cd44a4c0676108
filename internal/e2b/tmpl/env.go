package tmpl

import "strings"

// envWord makes of a variable's value a word of a Dockerfile. Values come as a program has them ("it's"), so
// a quote stands for itself, unless it and its like enclose the whole value, as what an SDK has read from a
// Dockerfile does. Names are expanded all the same.
func envWord(value string) string {
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] && strings.Count(value, value[:1]) == 2 {
		return value
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && i+1 < len(value):
			i++
			b.WriteString(value[i-1 : i+1])
		case c == '\\':
			b.WriteString(`\\`)
		case c == '"' || c == '\'':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
