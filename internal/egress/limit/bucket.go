// Package limit holds the measures by which one box is kept from costing the others: buckets of
// tokens, a count of distinct names, and turns.
package limit

import (
	"sync"
	"time"
)

// Bucket fills with rate tokens a second up to burst. The nil Bucket is without limit. It is safe
// for concurrent use.
type Bucket struct {
	rate, burst float64
	mu          sync.Mutex
	level       float64
	at          time.Time
}

// NewBucket makes a full bucket; nil when rate is not positive.
func NewBucket(rate, burst float64) *Bucket {
	if rate <= 0 {
		return nil
	}
	return &Bucket{rate: rate, burst: burst, level: burst, at: time.Now()}
}

func (b *Bucket) fill() {
	now := time.Now()
	b.level = min(b.burst, b.level+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
}

// Take takes n tokens if they are there.
func (b *Bucket) Take(n float64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	if b.level < n {
		return false
	}
	b.level -= n
	return true
}

// Spend takes n tokens whether they are there or not, and says how long to wait until the debt is
// paid.
func (b *Bucket) Spend(n float64) time.Duration {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	b.level -= n
	return b.debt()
}

// Wait says how long the debt takes to be paid.
func (b *Bucket) Wait() time.Duration {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	return b.debt()
}

func (b *Bucket) debt() time.Duration {
	if b.level >= 0 {
		return 0
	}
	return time.Duration(-b.level / b.rate * float64(time.Second))
}
