#!/usr/bin/env bash
# policies.sh start|stop [RUN_DIR]: has somebody see to it that the running cluster's NetworkPolicies are followed, which nobody does otherwise;
# or nobody again, with nothing left of it. Needs root.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
use_run_dir "${2:-}"
need_root policies.sh
lock
running kubelet || die "no cluster is up with the folder $RUN_DIR: run $HERE/up.sh"

# The chains of its own: others begin with KUBE-, too.
CHAINS='KUBE-(ROUTER|NWPLCY|POD-FW)-'

case ${1:-} in
  start)
    running policies || {
      # Of pods on one bridge the packet filter sees nothing otherwise.
      [[ $(< /proc/sys/net/bridge/bridge-nf-call-iptables) == 1 ]] || die "set net.bridge.bridge-nf-call-iptables to 1"
      start policies "$CACHE/kube-router-$KUBE_ROUTER/bin/kube-router" --kubeconfig "$RUN_DIR/admin.kubeconfig" \
        --hostname-override "$NODE" --run-firewall --run-router=false --run-service-proxy=false --run-loadbalancer=false \
        --service-cluster-ip-range "$SERVICE_CIDR" --health-port 0
    }
    step "NetworkPolicies are followed"
    ;;
  stop)
    stop policies
    remove_chains iptables "$CHAINS"
    remove_sets
    step "nobody follows NetworkPolicies"
    ;;
  *) die "usage: policies.sh start|stop [RUN_DIR]" ;;
esac
