#!/usr/bin/env bash
# e2e.sh rocksdb|ckb|rocksdb,ckb [OPTION...]: the end-to-end tests, with everything that they need: cluster, images, Helm chart. With both
# workloads each scenario that either serves for is played with a real CKB node.
# The options are those of the program e2e, such as --only figures. Needs root, and scripts/setup.sh build cluster before.
#
# A cluster that is up is used and stays up; one that is not is brought up, and taken down in the end unless KEEP=1.
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
# One at a time: they share the cluster. --close: the cluster's processes may outlive this script, and must not hold it.
if [[ -z ${CKB_PROBE_E2E_LOCKED:-} ]]; then
  mkdir -p "$CACHE"
  flock --nonblock "$CACHE/e2e.lock" true || step "waiting for other end-to-end tests on this machine"
  CKB_PROBE_E2E_LOCKED=1 exec flock --close "$CACHE/e2e.lock" "$here/e2e.sh" "$workload" "$@"
fi
PATH=$CACHE/kubernetes-$KUBERNETES/bin:$CACHE/helm-$HELM/bin:$PATH:/usr/sbin:/sbin
run=$(realpath --canonicalize-missing "${CKB_PROBE_RUN:-target/cluster}")
# Always the local one, whatever the caller's is: the tests look at the node's processes, and stop its API server.
export KUBECONFIG=$run/admin.kubeconfig

main() {
  local one
  step "building the end-to-end tests"
  # With the features of the whole workspace: unit tests were built with these.
  cargo build --locked --quiet --workspace --bin e2e
  # Before the cluster: a build that fails has nothing to take down.
  scripts/image.sh target/images/ckb-probe.tar
  for one in ${workload//,/ }; do tests/workload/image.sh "$one" "target/images/$one.tar"; done

  if ! kubectl get --raw /readyz > /dev/null 2>&1; then
    [[ ${KEEP:-} == 1 ]] || trap 'tests/cluster/down.sh "$run"' EXIT
    tests/cluster/up.sh "$run"
  fi
  tests/cluster/load-image.sh target/images/ckb-probe.tar "$run"
  for one in ${workload//,/ }; do tests/cluster/load-image.sh "target/images/$one.tar" "$run"; done
  step "installing the Helm chart into ckb-probe-system"
  install_chart registry.local/ckb-probe/ckb-probe:dev "$(digest target/images/ckb-probe.tar)" \
    --set agent.maxOverheadPercent=0 --set limits.minReportInterval=1s # onBreach: Report is to count every call, whatever it costs
  target/debug/e2e --workload "$workload" "$@"
}

main "$@"
