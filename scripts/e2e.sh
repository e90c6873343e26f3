#!/usr/bin/env bash
# e2e.sh rocksdb|ckb [OPTION...]: the end-to-end tests, with everything that they need: cluster, images, Helm chart.
# The options are those of the program e2e, such as --only figures. Needs root, and scripts/setup.sh build cluster before.
#
# A cluster that is up is used and stays up; one that is not is brought up, and taken down in the end unless KEEP=1.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
usage='usage: e2e.sh rocksdb|ckb [OPTION...]'
workload=${1:?$usage}
[[ $workload == @(rocksdb|ckb) ]] || die "$usage"
shift
need_root e2e.sh
cd "$here/.."
PATH=$CACHE/kubernetes-$KUBERNETES/bin:$CACHE/helm-$HELM/bin:$PATH:/usr/sbin:/sbin
run=$(realpath --canonicalize-missing "${CKB_PROBE_RUN:-target/cluster}")
# Always the local one, whatever the caller's is: the tests look at the node's processes, and stop its API server.
export KUBECONFIG=$run/admin.kubeconfig

main() {
  step "building the end-to-end tests"
  cargo build --locked --quiet --package ckb-probe-tests --bin e2e
  # Before the cluster: a build that fails has nothing to take down.
  scripts/image.sh target/images/ckb-probe.tar
  tests/workload/image.sh "$workload" "target/images/$workload.tar"

  if ! kubectl get --raw /readyz > /dev/null 2>&1; then
    [[ ${KEEP:-} == 1 ]] || trap 'tests/cluster/down.sh "$run"' EXIT
    tests/cluster/up.sh "$run"
  fi
  tests/cluster/load-image.sh target/images/ckb-probe.tar "$run"
  tests/cluster/load-image.sh "target/images/$workload.tar" "$run"
  install_chart
  cargo run --locked --quiet --package ckb-probe-tests --bin e2e -- --workload "$workload" "$@"
}

install_chart() {
  step "installing the Helm chart into ckb-probe-system"
  local build sys_admin
  sys_admin=$(sys_admin_needed)
  # A new image under the same name: what marks the agents' template as another restarts the operator, too.
  build=$(sha256sum target/images/ckb-probe.tar | cut -c 1-16)
  run_logged target/e2e/helm.log helm upgrade --install ckb-probe charts/ckb-probe --namespace ckb-probe-system \
    --create-namespace --set-string image.repository=registry.local/ckb-probe/ckb-probe --set-string image.tag=dev \
    --set-string "agent.podAnnotations.build=$build" --set agent.sysAdmin="$sys_admin" --wait --timeout 3m
}

main "$@"
