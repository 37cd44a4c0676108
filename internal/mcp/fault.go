package mcp

import (
	"context"
	"encoding/json"
	"errors"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// fault is a failed call as the agent sees it, below "error" of the structured content.
type fault struct {
	Class     string `json:"class" jsonschema:"whose fault it is: user, limit, policy or infrastructure"`
	Reason    string `json:"reason" jsonschema:"stable word for what happened"`
	Object    string `json:"object,omitempty" jsonschema:"what it is about"`
	Message   string `json:"message"`
	Remedy    string `json:"remedy,omitempty" jsonschema:"what to do about it"`
	Retryable bool   `json:"retryable,omitempty" jsonschema:"the same call may succeed later"`
}

// failure is the part that every tool's output has: error is set when the call failed.
type failure struct {
	Error *fault `json:"error,omitempty"`
}

func faultOf(err error) fault {
	if e, ok := errors.AsType[*dsec.Error](err); ok {
		return fault{e.Class, e.Reason, e.Object, e.Message, e.Remedy, e.Retryable}
	}
	// What is left is the protocol's own verdict on the arguments.
	return fault{Class: dsec.ClassUser, Reason: "invalid_argument", Message: err.Error(), Remedy: "give the arguments that the tool's schema describes"}
}

// typed gives failed tool calls a typed error in place of a sentence.
func typed(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		call, ok := res.(*sdk.CallToolResult)
		if !ok || err != nil || !call.IsError || call.GetError() == nil {
			return res, err
		}
		f := faultOf(call.GetError())
		body, merr := json.Marshal(failure{&f})
		if merr != nil {
			return res, err
		}
		call.StructuredContent = json.RawMessage(body)
		call.Content = []sdk.Content{&sdk.TextContent{Text: string(body)}}
		return call, nil
	}
}

func invalid(object, message, remedy string) error {
	return &dsec.Error{Class: dsec.ClassUser, Reason: "invalid_argument", Scope: "platform", Object: object, Message: message, Remedy: remedy}
}
