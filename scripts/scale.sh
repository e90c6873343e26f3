#!/usr/bin/env bash
# scale.sh [OPTION...]: the operator beside loads that exist in the API alone, each on an etcd and an API server of its own: 1,000 nodes,
# 5,000 targets and as many agents as nodes; thousands of paused copies of a CkbProbe; a hundred agents with full reports; no operator
# for an hour. Writes target/scale/report.md and report.json. Some 25 minutes. NODES=50 is for a small cluster. docs/scale.md explains
# the figures. The options are those of the program scale, such as --strict or --only paused. Needs root, and scripts/setup.sh build
# cluster before.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
need_root scale.sh
cd "$here/.."
# Not beside end-to-end tests or benchmarks: there is one cluster on a machine, and they would measure each other.
alone "$@"
cluster_tools

step "building the operator and the program that measures it"
[[ " $* " == *" --operator "* ]] || cargo build --locked --quiet --release --bin ckb-probe-operator
# Not a debug build: it is a thousand agents, which would take the machine from who is measured.
# With the features of the whole workspace, so that nothing is built twice.
cargo build --locked --quiet --release --bin scale
! kubectl get --raw /readyz > /dev/null 2>&1 || die "a cluster is up: take it down before, with tests/cluster/down.sh '$run'"
trap 'tests/cluster/down.sh "$run"' EXIT
step "measuring: leave the machine alone"
target/release/scale "$@"
