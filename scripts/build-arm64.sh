#!/usr/bin/env bash
# build-arm64.sh [CARGO_OPTIONS...]: compiles the operator, the agent, the command line and the plugin for arm64, on a machine of another
# architecture, into target/arm64/aarch64-unknown-linux-gnu. Needs `scripts/setup.sh build arm64` before. The default option is --release.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

(($#)) || set -- --release
sysroot=$(arm64_sysroot)
[[ -d $sysroot ]] || die "there is no std of Rust for arm64 in $sysroot: run scripts/setup.sh arm64"

# Debian's compiler: that std is of its release, and of no other.
export RUSTC=/usr/bin/rustc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="--sysroot=$sysroot"
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar
cargo build --locked --target aarch64-unknown-linux-gnu --target-dir target/arm64 "$@" \
  --bin ckb-probe-operator --bin node-agent --bin ckb-probe --bin kubectl-ckbprobe
