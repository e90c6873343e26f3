#!/usr/bin/env bash
# e2e.sh rocksdb|ckb|rocksdb,ckb [OPTION...]: the end-to-end tests, with everything that they need: cluster, images, Helm chart. With both
# workloads each scenario that either serves for is played with a real CKB node.
# The options are those of the program e2e, such as --only figures. Needs root, and scripts/setup.sh build cluster before.
#
# A cluster that is up is used and stays up; one that is not is brought up, and taken down in the end unless KEEP=1. IMAGE names an archive
# of ckb-probe's image to be used as it is, such as that of make image-test; by default it is built.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
usage='usage: e2e.sh rocksdb|ckb|rocksdb,ckb [OPTION...]'
workload=${1:?$usage}
[[ $workload == @(rocksdb|ckb|rocksdb,ckb) ]] || die "$usage"
shift
need_root e2e.sh
cd "$here/.."
# One at a time: they share the cluster.
alone "$workload" "$@"
# The local one: the tests look at the node's processes, and stop its API server.
cluster_tools

main() {
  local one image=${IMAGE:-target/images/ckb-probe.tar} workloads
  IFS=, read -r -a workloads <<< "$workload"
  # What stands beside the stand-in, and is measured by itself.
  [[ $workload != *rocksdb* ]] || workloads+=(postgresql)
  step "building the end-to-end tests"
  build_harness e2e kubectl-ckbprobe ckb-probe
  # Before the cluster: a build that fails has nothing to take down.
  [[ -n ${IMAGE:-} ]] || scripts/image.sh "$image"
  for one in "${workloads[@]}"; do tests/workload/image.sh "$one" "target/images/$one.tar"; done

  if ! kubectl get --raw /readyz > /dev/null 2>&1; then
    [[ ${KEEP:-} == 1 ]] || trap 'tests/cluster/down.sh "$run"' EXIT
    tests/cluster/up.sh "$run"
  fi
  tests/cluster/load-image.sh "$image" "$run"
  for one in "${workloads[@]}"; do tests/cluster/load-image.sh "target/images/$one.tar" "$run"; done
  step "installing the Helm chart into ckb-probe-system"
  install_chart registry.local/ckb-probe/ckb-probe:dev "$(digest "$image")" \
    --set agent.maxOverheadPercent=0 --set limits.minReportInterval=1s # onBreach: Report is to count every call, whatever it costs
  "$harness/e2e" --workload "$workload" "$@"
}

main "$@"
