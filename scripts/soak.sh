#!/usr/bin/env bash
# soak.sh [OPTION...]: everything that goes wrong on a cluster, again and again, while targets are measured; writes
# target/soak/report.html and report.json. MINUTES=60 of faults by default, at the least as many as it takes for each to strike once;
# SEED plays a schedule again. RESTARTS=10000 KILLS=1000 adds so many restarts of a target and kills of an agent, without the
# cluster. docs/scale.md explains it. The options are those of the program soak, such as --only agent-killed. It sets the wall
# clock of this machine for some seconds. Needs root, and scripts/setup.sh build cluster before.
#
# A cluster that is up is used and stays up; one that is not is brought up, and taken down in the end unless KEEP=1. IMAGE names an
# archive of ckb-probe's image to be used as it is; by default it is built.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
need_root soak.sh
cd "$here/.."
# Not beside end-to-end tests or benchmarks: there is one cluster on a machine, and nothing of it is left in peace.
alone "$@"
cluster_tools

step "building the soak test"
build_harness soak
image=${IMAGE:-target/images/ckb-probe.tar}
[[ -n ${IMAGE:-} ]] || scripts/image.sh "$image"
tests/workload/image.sh rocksdb target/images/rocksdb.tar
if ! kubectl get --raw /readyz > /dev/null 2>&1; then
  [[ ${KEEP:-} == 1 ]] || trap 'tests/cluster/down.sh "$run"' EXIT
  tests/cluster/up.sh "$run"
fi
tests/cluster/load-image.sh "$image" "$run"
tests/cluster/load-image.sh target/images/rocksdb.tar "$run"
step "installing the Helm chart into ckb-probe-system"
install_chart registry.local/ckb-probe/ckb-probe:dev "$(digest "$image")" \
  --set agent.maxOverheadPercent=0 --set limits.minReportInterval=1s # onBreach: Report is to count every call, whatever it costs
"$harness/soak" "$@"
