#!/usr/bin/env bash
# down.sh [RUN_DIR]: takes the cluster down and leaves nothing of it on the machine but RUN_DIR/log. Needs root.
# Works from whatever state the cluster is in, and does nothing when there is none.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
use_run_dir "${1:-}"
need_root down.sh

main() {
  lock
  # Without this folder nothing of the cluster can be here, and the chains and cgroups belong to somebody else.
  [[ -e $STATE ]] || {
    step "no cluster is up"
    return
  }
  refuse_other_run_dir
  step "stopping kubelet, kube-proxy, the scheduler and the controller manager"
  local name
  for name in policies kubelet proxy scheduler controller-manager; do stop "$name"; done
  step "ending the containers"
  end_containers
  step "stopping containerd, the API server and etcd"
  for name in containerd apiserver etcd; do stop "$name"; done
  end_strays
  step "removing mounts, links, chains, sets and cgroups"
  remove_mounts
  remove_links
  [[ -z $(ip -oneline address show to "$NODE_IP") ]] || ip address delete "$NODE_IP/32" dev lo
  remove_chains iptables
  remove_chains ip6tables
  remove_sets
  remove_cgroups
  restore_sysctls
  remove_files
  "$HERE/leftovers.sh" || die "the above is left of the cluster: run $HERE/down.sh again, and tell what you find"
  step "down"
}

end_containers() {
  local pids
  if running containerd; then
    forget_containers > "$RUN_DIR/log/down.log" 2>&1 ||
      step "containerd does not end every container ($RUN_DIR/log/down.log): ending the processes one by one"
  fi
  mapfile -t pids < <(container_pids)
  end KILL 10 "${pids[@]}" || die "these processes of containers do not end: ${pids[*]}"
}

# Through containerd, which deletes the task of a container that ended, so that each shim ends in good order.
forget_containers() {
  local ctr=(timeout 20 ctr --address "$CONTAINERD_SOCKET" --namespace k8s.io)
  "${ctr[@]}" tasks ls --quiet | xargs --no-run-if-empty --max-args 1 "${ctr[@]}" tasks kill --signal KILL
  wait_for 10 no_tasks || return 1
  "${ctr[@]}" containers ls --quiet | xargs --no-run-if-empty "${ctr[@]}" containers rm
}

no_tasks() { [[ -z $(ctr tasks ls --quiet) ]]; }

# What carries the cluster's mark: shims, or processes whose pid file got lost.
end_strays() {
  local pids
  mapfile -t pids < <(our_pids)
  end TERM 5 "${pids[@]}" && return
  mapfile -t pids < <(our_pids)
  end KILL 10 "${pids[@]}" || die "these processes do not end: ${pids[*]}"
}

restore_sysctls() {
  local setting value
  [[ -s $STATE/sysctls ]] || return 0
  while read -r setting value; do
    [[ $(< "/proc/sys/$setting") == "$value" ]] || echo "$value" > "/proc/sys/$setting"
  done < "$STATE/sysctls"
}

remove_files() {
  rm -rf "$RUN_DIR"/{pki,config,kubectl-cache} "$RUN_DIR"/*.{pid,kubeconfig}
  # kubelet and the CNI library also write to fixed places.
  rm -rf /var/lib/kubelet/device-plugins
  our_cni_results | xargs --no-run-if-empty rm
  if [[ -d /var/log/containers ]]; then find /var/log/containers -lname "$RUN_DIR/log/pods/*" -delete; fi
  local folder
  for folder in /var/lib/kubelet /var/lib/cni{/results,} /var/log/containers /run/containerd{/s,} /run/mount; do
    [[ ! -d $folder ]] || rmdir --ignore-fail-on-non-empty "$folder"
  done
  # Last: while the state is there, this script knows that there is something to take down.
  rm -rf "$SOCKETS" "$STATE"
}

main
