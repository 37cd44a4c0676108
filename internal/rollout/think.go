package rollout

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Think is a distribution of the time, in milliseconds, that an agent thinks
// before a step. A bare number is a constant.
type Think struct {
	Dist   string  `json:"dist"`             // constant, uniform, exponential, lognormal
	Value  float64 `json:"value,omitempty"`  // constant
	Min    float64 `json:"min,omitempty"`    // uniform; least of the others
	Max    float64 `json:"max,omitempty"`    // uniform; most of the others
	Mean   float64 `json:"mean,omitempty"`   // exponential
	Median float64 `json:"median,omitempty"` // lognormal
	Sigma  float64 `json:"sigma,omitempty"`  // lognormal: spread of the logarithm
}

type thinkFields Think

// UnmarshalJSON reads a number or the object.
func (t *Think) UnmarshalJSON(b []byte) error {
	if f, err := strconv.ParseFloat(string(b), 64); err == nil {
		*t = Think{Dist: "constant", Value: f}
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode((*thinkFields)(t)); err != nil {
		if _, isType := errors.AsType[*json.UnmarshalTypeError](err); isType {
			return errors.New("think_ms is a number of milliseconds or an object with dist")
		}
		return err
	}
	return nil
}

const maxThink = 24 * 3600 * 1000

func (t *Think) check(at string) error {
	if t == nil {
		return nil
	}
	for _, v := range []float64{t.Value, t.Min, t.Max, t.Mean, t.Median, t.Sigma} {
		if v < 0 || v > maxThink || math.IsNaN(v) {
			return fault{at, "has a value below 0 or over a day", "give milliseconds"}
		}
	}
	if t.Max > 0 && t.Max < t.Min {
		return fault{at + ".max", "is less than min", "swap them"}
	}
	bad := func(field string) error {
		return fault{at + "." + field, "is missing", "the distribution " + t.Dist + " needs it"}
	}
	switch t.Dist {
	case "constant":
	case "uniform":
		if t.Max == 0 {
			return bad("max")
		}
	case "exponential":
		if t.Mean == 0 {
			return bad("mean")
		}
	case "lognormal":
		if t.Median == 0 {
			return bad("median")
		}
		if t.Sigma > 10 {
			return fault{at + ".sigma", "is over 10", "0.3 to 1.5 is usual"}
		}
	default:
		return fault{at + ".dist", strconv.Quote(t.Dist) + " is not known", "use constant, uniform, exponential or lognormal"}
	}
	return nil
}

// draw gives one pause.
func (t *Think) draw(r *rand.Rand) time.Duration {
	if t == nil {
		return 0
	}
	var ms float64
	switch t.Dist {
	case "constant":
		ms = t.Value
	case "uniform":
		ms = t.Min + r.Float64()*(t.Max-t.Min)
	case "exponential":
		ms = t.bounded(r.ExpFloat64() * t.Mean)
	case "lognormal":
		ms = t.bounded(t.Median * math.Exp(r.NormFloat64()*t.Sigma))
	}
	return time.Duration(min(ms, maxThink) * float64(time.Millisecond))
}

func (t *Think) bounded(ms float64) float64 {
	if t.Max > 0 {
		ms = min(ms, t.Max)
	}
	return max(ms, t.Min)
}

// random gives a rollout's own source: the same seed, task and index think alike
// whatever else runs.
func random(seed uint64, task string, index int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(task + "\x00" + strconv.Itoa(index))) // a hash never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
