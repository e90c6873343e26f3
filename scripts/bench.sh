#!/usr/bin/env bash
# bench.sh [--strict] [FAMILY...]: measures what probing costs and how true its figures are, and writes target/bench/report.md
# and report.json. Some 75 minutes, on a machine that does nothing else; the first time, CKB is built before (half an hour).
# Needs root.
#
# FAMILY: call-cost import mining quantiles truth slow slow-stacks functions kernel-functions syscalls block-io tcp processes agent identical hostile
# crowded execs restarts kills stability profile-complete profile-perf profile-vm profile-off-cpu profile-memory profile-allocations profile-threads
# profile-cost profile-agent profile-bystander; default all of them.
# docs/performance.md explains them.
# Other options are those of the program bench, such as --rounds 7. BLOCKS: how long a chain is imported (default 60000).
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
need_root bench.sh
cd "$here/.."
# One at a time, and not beside end-to-end tests: they would measure each other.
alone "$@"
PATH=$PATH:/usr/sbin:/sbin

scripts/setup.sh build bench
scripts/build-ckb.sh
# One family needs it, which has its turn where none is named.
[[ " $*" =~ ' '[a-z] && " $* " != *' profile-allocations '* ]] || scripts/build-ckb.sh --profiling
chain=$(scripts/build-chain.sh "${BLOCKS:-60000}")
scripts=$(scripts/build-chain.sh --scripts)

step "building ckb-probe and the benchmark"
cargo build --locked --quiet --release --package ckb-probe-agent
cargo build --locked --quiet --package ckb-probe-tests --bin bench
step "measuring: leave the machine alone"
exec target/debug/bench --ckb "$CACHE/ckb-$CKB/bin/ckb" --ckb-profiling "$CACHE/ckb-$CKB-profiling/bin/ckb" \
  --chain "$chain" --scripts "$scripts" "$@"
