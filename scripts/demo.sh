#!/usr/bin/env bash
# demo.sh: from nothing to the live status of a CkbProbe. `make demo-down` takes it all away again.
#
#   KUBECONFIG       a cluster to use instead of a local one; IMAGE, and WORKLOAD_IMAGE, must be pullable there
#   IMAGE            the image of operator and agent (default with a local cluster: built here)
#   WORKLOAD         ckb: a real CKB node mining on its dev chain, built first where there is none (half an hour, once)
#                    rocksdb: a small program that drives RocksDB the way CKB does
#                    default: ckb where there is a node at hand (CKB_BIN, PATH, or built before), else rocksdb
#   WORKLOAD_IMAGE   the image of the workload (default with KUBECONFIG: IMAGE with "-workload" after its name)
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
cd "$here/.."
kubernetes_tools
namespace=ckb-probe-system
image=${IMAGE:-registry.local/ckb-probe/ckb-probe:dev}
build=
mkdir -p target

node_at_hand() { [[ -x ${CKB_BIN:-} || -x $CACHE/ckb-$CKB/bin/ckb ]] || command -v ckb > /dev/null; }

choose_workload() {
  workload=${WORKLOAD:-}
  [[ -n $workload ]] || if node_at_hand; then workload=ckb; else workload=rocksdb; fi
  case $workload in
    ckb) node_at_hand || scripts/build-ckb.sh ;;
    rocksdb) ;;
    *) die "WORKLOAD=$workload: there are ckb and rocksdb" ;;
  esac
  step "the workload is $workload"
}

local_cluster() {
  need_root "a local cluster"
  scripts/setup.sh build cluster
  choose_workload
  tests/cluster/up.sh "$run"
  export KUBECONFIG=$PWD/$run/admin.kubeconfig
  if [[ -z ${IMAGE:-} ]]; then
    scripts/image.sh target/images/ckb-probe.tar
    tests/cluster/load-image.sh target/images/ckb-probe.tar "$run"
    build=$(digest target/images/ckb-probe.tar)
  fi
  tests/workload/image.sh "$workload" "target/images/$workload.tar"
  tests/cluster/load-image.sh "target/images/$workload.tar" "$run"
  workload_image=
}

given_cluster() {
  [[ -n ${IMAGE:-} ]] || die "KUBECONFIG is set and its cluster answers: set IMAGE to an image that it can pull (see
       the Dockerfile), or unset KUBECONFIG to start a local cluster"
  workload=${WORKLOAD:-rocksdb}
  workload_image=${WORKLOAD_IMAGE:-${IMAGE%:*}-workload:${IMAGE##*:}}
  step "using the cluster of KUBECONFIG, with $image and $workload_image"
}

if [[ -n ${KUBECONFIG:-} ]] && kubectl get --raw /readyz > /dev/null 2>&1; then
  given_cluster
else
  local_cluster
fi

step "installing the Helm chart into $namespace"
install_chart "$image" "$build"

step "starting the workload"
manifest=tests/workload/$workload.yaml
if [[ -n $workload_image ]]; then
  sed "s|image: registry.local/.*|image: $workload_image|" "$manifest" | kubectl apply -f - > target/demo-workload.log
else
  kubectl apply -f "$manifest" > target/demo-workload.log
fi
kubectl -n ckb rollout status deployment/ckb --timeout 3m > target/demo-workload.log

step "applying config/samples/demo.yaml"
kubectl apply -f config/samples/demo.yaml
kubectl -n ckb wait ckbprobe/ckb --for condition=Ready --timeout 60s > /dev/null ||
  die "the CkbProbe is not Ready after a minute: $(kubectl -n ckb get ckbprobe ckb -o jsonpath='{.status.conditions[?(@.type=="Ready")].message}')"
# The figures are those of one report interval: wait for a whole one.
kubectl -n ckb wait ckbprobe/ckb --for jsonpath='{.status.headline}' --timeout 60s > /dev/null
sleep 6
step "the CkbProbe is Ready"

show() {
  printf '\n$ %s\n' "$*"
  "$@"
}
show kubectl -n ckb get ckbprobe
show kubectl -n ckb get ckbprobe -o wide
show kubectl -n ckb describe ckbprobe ckb
agent=$(kubectl -n "$namespace" get pods -l app.kubernetes.io/component=agent -o jsonpath='{.items[0].metadata.name}')
metrics=/api/v1/namespaces/$namespace/pods/$agent:9464/proxy/metrics
printf '\n$ kubectl get --raw %s | grep -E "_count|slow|firing|overhead"\n' "$metrics"
kubectl get --raw "$metrics" | grep -E '^ckb_probe_(operation_duration_seconds_count|slow_operations_total|target_firing|overhead_ratio)'

# everything: the sample, as this workload needs it.
everything() {
  local sample=config/samples/everything.yaml
  if [[ $workload == ckb ]]; then
    cat "$sample"
  else # its RocksDB is in a library
    sed "s/functions: {match: 'rocksdb_[^}]*/&, library: librocksdb/" "$sample"
  fi
}

# excerpt: the conditions of a status, and of each probe its words and the first of its rows, without parts.
excerpt() {
  awk '
    /^Events:/ { exit }
    /^Status:/ { status = 1 }
    !status { next }
    /^  [A-Z]/ { shown = /^  (Conditions|Headline|Overhead|Probes):/ }
    /^    [A-Z]/ { rows = /^    Rows:/; more = /^    (Events|Lost|Rows Omitted|Targets):/; count = 0 }
    rows && /^      Figures:/ { count++ }
    rows && /^      [A-Z]/ { parts = /^      Parts:/ }
    !shown || more || rows && (count > 1 || parts) { next }
    !/Last Transition Time|Observed Generation/
  '
}

# A process is measured once, under the largest budget that anybody asks: the first CkbProbe's is not the sample's.
step "applying config/samples/everything.yaml in place of the first one"
kubectl -n ckb delete ckbprobe ckb
everything | kubectl apply -f -
kubectl -n ckb wait ckbprobe/everything --for jsonpath='{.status.headline}' --timeout 60s > /dev/null
kubectl -n ckb wait ckbprobe/everything --for condition=WithinBudget --timeout 120s > /dev/null ||
  die "the CkbProbe does not keep its budget: $(kubectl -n ckb get ckbprobe everything -o jsonpath='{.status.overhead.summary}')"
sleep 11
show kubectl -n ckb get ckbprobe
printf '\n$ kubectl -n ckb describe ckbprobe everything      (part of it)\n'
kubectl -n ckb describe ckbprobe everything | excerpt

cat <<EOF

That was measured just now. What to try next:

  export KUBECONFIG=$KUBECONFIG PATH=$CACHE/kubernetes-$KUBERNETES/bin:\$PATH
  kubectl -n ckb get ckbprobe -w                       the figures as they change
  kubectl explain ckbprobe.spec.probes                 what can be asked for
  kubectl -n ckb edit ckbprobe everything              ask for something else
  kubectl -n ckb delete pod -l app=ckb                 restart the node, and see reattaches and gapSeconds
  target/release/ckb-probe rocksdb --pid \$(pgrep -xo ckb)   the same engine on the command line

  make demo-down                                       takes everything away again
EOF
