#!/usr/bin/env bash
# test-traces.sh: what of traces and blocks takes longer than a gate has. A real CKB node imports a chain, each block is a trace in Jaeger, and the
# slowest is found there by its height; of 40,000 blocks of another each is told once, as that chain has it, and to tell of them keeps to the budget
# and takes little memory; the same of a node that syncs blocks from another; and 10,000 spans a second go through an OpenTelemetry Collector for a
# minute, each way that there is. Needs root. Builds CKB first where there is none: half an hour.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"
need_root test-traces.sh

scripts/build-ckb.sh
chain=$(scripts/build-chain.sh "${BLOCKS:-5000}" | tail -n 1)
long_chain=$(scripts/build-chain.sh 40000 | tail -n 1)
CKB_PROBE_CHAIN=$chain CKB_PROBE_LONG_CHAIN=$long_chain cargo test --locked --workspace --test traces -- --ignored --nocapture --test-threads 1
# As it is released: what is measured is what it costs.
cargo test --locked --release --package ckb-probe-otlp --test collector -- --ignored --nocapture
