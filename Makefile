# The commands of the project; `make help` lists them. Each is a line or a script in scripts/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
# Where cargo builds. Reports go to target/ in any case: scripts look for them there.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Seconds of load that `make demo` measures each system with (8 for a result), and that each fuzz target runs.
DEMO_SECONDS ?= 4
FUZZ_SECONDS ?= 60

.PHONY: help setup demo test test-devices attack-tcp packetdrill-plugin lint bpf fuzz loom miri nightly bench clean

help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## /\1\t/' | expand -t 14

setup: ## install the packages that everything below needs
	scripts/setup.sh build bpf test demo

demo: ## tailplane beside memcached on the kernel: a table, and target/demo/report.html
	scripts/setup.sh demo
	$(CARGO) build --release --package figures
	mkdir -p target/demo
	scripts/as-root.sh $(TARGET)/release/tailplane-lab demo --seconds $(DEMO_SECONDS) --json target/demo/result.json --html target/demo/report.html

test: ## format, clippy and all tests; ends with "N passed, N failed"
	scripts/setup.sh test
	scripts/test.sh

test-%: ## the tests of one room alone: test-core, test-api, test-host, test-lab ...
	scripts/setup.sh test
	scripts/test.sh --room $*

test-devices: ## the drivers of real NICs, in emulated machines: a table in docs/results/devices.md (needs root)
	scripts/devices.sh --into docs/results/devices.md

attack-tcp: ## TCP attacks in virtual time beside honest clients: a table; fails where an attack works
	$(CARGO) run --release --quiet --package attack -- tcp

packetdrill-plugin: ## the stack as a shared object for google/packetdrill; prints its path last
	$(CARGO) build --package packetdrill
	@realpath $(TARGET)/debug/libtailplane_packetdrill.so

lint: ## format and clippy alone
	scripts/lint.sh

bpf: ## rebuild the BPF objects and compare them with the committed ones
	scripts/setup.sh bpf
	scripts/bpf.sh

fuzz: ## every fuzz target for FUZZ_SECONDS
	scripts/fuzz.sh $(FUZZ_SECONDS)

loom: ## model checking of the lock-free structures
	scripts/loom.sh

miri: ## the modules with unsafe code under Miri
	scripts/miri.sh

nightly: ## fuzz, miri, loom, seeds, policy, attacks, dependencies, BPF: a table in docs/results/nightly.md
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/nightly.sh

bench: ## instructions per request (callgrind), and half a million connections
	scripts/bench-instructions.sh --profile
	$(CARGO) run --release --quiet --package bench --bin connections

clean: ## remove what was built
	$(CARGO) clean
