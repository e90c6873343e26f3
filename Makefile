# Each target is one line: the work is in scripts/ and in the tests crate.
.PHONY: help setup fmt lint build build-arm64 test test-unit test-browser test-traces test-ckb test-kernels test-kubernetes fuzz e2e soak scale upgrade-test ckb-compat gate nightly crds image image-test release book bench stability demo demo-down clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

setup: ## install what building, the local cluster and linting need (idempotent)
	scripts/setup.sh all

fmt: ## format the code
	cargo fmt --all && for own in ebpf/programs node-agent/fuzz operator/fuzz; do cargo fmt --manifest-path $$own/Cargo.toml || exit; done

lint: ## fmt, clippy, cargo deny, shellcheck, actionlint, drift of generated files
	scripts/setup.sh build cluster lint && scripts/lint.sh

build: ## build the operator, the agent and the command line
	scripts/setup.sh build && cargo build --locked --release

build-arm64: ## the same and the plugin of kubectl for arm64, compiled on x86-64 into target/arm64; tried on an emulated kernel alone
	scripts/setup.sh build arm64 && scripts/build-arm64.sh $(BUILD_OPTIONS)

test: test-unit e2e ## unit, property, kernel and end-to-end tests

test-unit: ## unit and property tests, kernel tests against a program whose calls are known, and the seeds of the fuzzer
	scripts/setup.sh build unit cluster && scripts/test-unit.sh

fuzz: ## crafted files, profiles, stacks and objects, for more than an hour; FUZZ_SECONDS=30 each for a short one
	scripts/setup.sh build fuzz && scripts/fuzz.sh $(or $(FUZZ_SECONDS),600)

test-browser: ## flame graphs and reports in headless Chromium: search, zoom, printing, and screenshots in target/tmp/{flames,record}/browser
	scripts/setup.sh build browser && cargo test --locked --package ckb-probe-agent --test flames --test record -- --ignored

e2e: ## end-to-end tests on a local cluster, with the embedded workload
	scripts/setup.sh build cluster && scripts/e2e.sh rocksdb $(E2E_OPTIONS)

test-traces: ## the slowest block of an import in Jaeger, and 10,000 spans a second through a Collector: 7 minutes
	scripts/setup.sh build unit traces && scripts/test-traces.sh

test-ckb: ## end-to-end tests on a local cluster, with a real CKB node (built first: half an hour, once); WORKLOAD=rocksdb,ckb for all of them
	scripts/setup.sh build cluster && scripts/build-ckb.sh && scripts/e2e.sh $(or $(WORKLOAD),ckb) $(E2E_OPTIONS)

test-kernels: ## each kind's kernel tests on Linux 6.1, 6.12 and 7.2, each also PREEMPT_RT, and 6.12 of arm64, emulated, and on this machine's: hours
	scripts/setup.sh build arm64 && scripts/test-kernels.sh $(KERNELS)

test-kubernetes: ## the end-to-end tests on Kubernetes 1.30, the oldest that is enough (built first: 10 minutes, once)
	scripts/setup.sh build && scripts/test-kubernetes.sh $(E2E_OPTIONS)

soak: ## everything that goes wrong, again and again, on a local cluster: MINUTES=60 of it, SEED=N to play it again
	scripts/setup.sh build cluster && scripts/soak.sh $(SOAK_OPTIONS)

scale: ## the operator beside 1,000 nodes, and other loads that exist in the API alone: 25 minutes; NODES=50 for a small one
	scripts/setup.sh build cluster && scripts/scale.sh

upgrade-test: ## an earlier release upgraded to this one and back, while it measures; COMMIT=… names it (its image is built once)
	scripts/setup.sh build cluster && scripts/upgrade.sh $(COMMIT)

ckb-compat: ## whether releases of CKB are measured, for docs/compatibility.md: VERSIONS="0.210.0 newest"; each is built once, for half an hour
	scripts/setup.sh build cluster && scripts/ckb-compat.sh $(or $(VERSIONS),newest)

gate: ## what must pass before a change lands: half an hour
	.ci/run

nightly: ## what takes too long for a gate: an hour of soak, fuzz, kernels, the oldest Kubernetes, a capture, scale, upgrade, bench, the book, a browser, Fiber's binding, krew and write amplification, one after the other: a night
	scripts/nightly.sh $(PARTS)

crds: ## regenerate everything that is generated: CRDs, their reference, the chart's copy, config/, alerts, dashboards
	scripts/render-config.sh

image: ## build the image as an OCI archive, target/images/ckb-probe.tar
	scripts/setup.sh build && scripts/image.sh target/images/ckb-probe.tar

image-test: ## the images of a release, by buildah on bases of Debian's packages: two builds, one digest, and what is in it
	scripts/setup.sh build cluster release arm64 && scripts/image-test.sh $(RELEASE)

release: ## everything that a release holds, in target/release-VERSION, for x86-64 and arm64: twenty minutes; RELEASE_KEY=… names the SSH key that signs
	scripts/setup.sh build cluster release arm64 && RELEASE_KEY=$(RELEASE_KEY) scripts/release.sh

book: ## docs/ as a book with search, in target/book; builds mdBook once
	scripts/setup.sh book && scripts/book.sh

bench: ## what probing costs and how true its figures are: 75 minutes; ROWS="import mining" for some of it
	scripts/bench.sh $(ROWS)

stability: ## a CKB node that is left alone, then recorded within the budget, then asked everything, a third of HOURS=48 each; a row that is missed is a failure
	scripts/bench.sh --strict --hours $(or $(HOURS),48) stability

demo: ## the whole thing, live: a cluster, a workload, a CkbProbe and its status
	scripts/demo.sh

demo-down: ## take everything of the demo away again
	scripts/demo-down.sh

clean: ## remove what was built
	cargo clean
