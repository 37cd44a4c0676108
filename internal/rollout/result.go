package rollout

// Verdict of a rollout.
type Verdict string

const (
	Pass Verdict = "pass"
	// Fail: a check was not met, or the agent ran into a limit or a policy.
	Fail Verdict = "fail"
	// Errored: the platform decided, not the agent; there is no reward.
	Errored Verdict = "error"
)

// Result is one rollout, a line of --out.
type Result struct {
	Task    string  `json:"task"`
	Index   int     `json:"index"`   // within the group, from 0
	Attempt int     `json:"attempt"` // from 1; higher after retries
	Session string  `json:"session,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Reward is the sum over the checks that were met; null when Masked.
	Reward *float64 `json:"reward"`
	// Masked: a trainer must not learn from it.
	Masked bool `json:"masked,omitempty"`
	// Class and Reason of what decided a fail or an error.
	Class   string       `json:"class,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Steps   []StepResult `json:"steps"`
	// Milliseconds. FirstResult is Create plus the first step, without thinking.
	Create      float64 `json:"create_ms"`
	FirstResult float64 `json:"first_result_ms,omitempty"`
	Thought     float64 `json:"thought_ms"`
	Wall        float64 `json:"wall_ms"`
}

// StepResult is one step.
type StepResult struct {
	Kind     string   `json:"kind"`
	Met      *bool    `json:"met,omitempty"` // of a check
	Reward   *float64 `json:"reward,omitempty"`
	Exit     *int32   `json:"exit,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	TimedOut bool     `json:"timed_out,omitempty"`
	OOM      bool     `json:"oom,omitempty"`
	Limit    string   `json:"limit,omitempty"`
	OpID     string   `json:"op_id,omitempty"`
	// Call is the whole call, Command what the command itself took: milliseconds.
	Call    float64 `json:"call_ms"`
	Command float64 `json:"command_ms,omitempty"`
	// Output is the end of what a check printed that was not met.
	Output string `json:"output,omitempty"`
}
