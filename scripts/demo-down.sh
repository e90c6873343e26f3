#!/usr/bin/env bash
# demo-down.sh: takes away what demo.sh made: the local cluster with all that is in it, or, of the cluster of
# KUBECONFIG, the demo's CkbProbe, workload, release and CRDs.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
cd "$here/.."
kubernetes_tools

given=${KUBECONFIG:-}
if [[ -n $given && $(realpath -m "$given") != $(realpath -m "$run/admin.kubeconfig") ]] &&
  kubectl get --raw /readyz > /dev/null 2>&1; then
  step "removing the demo from the cluster of KUBECONFIG"
  kubectl delete -f config/samples/demo.yaml --ignore-not-found
  kubectl delete -f tests/workload/rocksdb.yaml --ignore-not-found
  kubectl -n ckb-probe-system delete nodeprobes --all --ignore-not-found
  helm uninstall ckb-probe --namespace ckb-probe-system --ignore-not-found --wait
  kubectl delete crd ckbprobes.ckbprobe.dev ckbprofiles.ckbprobe.dev nodeprobes.ckbprobe.dev profileparts.ckbprobe.dev --ignore-not-found
  kubectl delete namespace ckb-probe-system --ignore-not-found
else
  tests/cluster/down.sh "$run"
fi
