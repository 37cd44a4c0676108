// Package gate is the judge of one box: it holds the policy in force and everything that a verdict
// depends on (pins, limits, open flows), and records each verdict. It knows neither packets nor
// TLS; whoever moves bytes asks it first and tells it what moved.
package gate
