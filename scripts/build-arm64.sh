#!/usr/bin/env bash
# build-arm64.sh [CARGO_OPTIONS...]: compiles the operator, the agent, the command line and the plugin for arm64, on a machine of another
# architecture, into target/arm64/aarch64-unknown-linux-gnu. Needs `scripts/setup.sh build arm64` before. The default option is --release.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

(($#)) || set -- --release
compile_for_arm64
cargo build --locked --target aarch64-unknown-linux-gnu --target-dir target/arm64 "$@" \
  --bin ckb-probe-operator --bin node-agent --bin ckb-probe --bin kubectl-ckbprobe
