#!/usr/bin/env bash
# leftovers.sh: lists whatever of the cluster is on this machine, one per line; exit 1 when there is something.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
need_root leftovers.sh

# each KIND: puts KIND before each line.
each() { sed "s|^|$1: |"; }

list() {
  local path
  { our_pids; container_pids; } | sort -nu | while read -r pid; do
    echo "$pid $(tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | cut -c -100)"
  done | each process
  our_mounts | each mount
  our_links | each link
  ip -oneline address show to "$NODE_IP" | each address
  our_chains iptables | each "iptables chain"
  our_chains ip6tables | each "ip6tables chain"
  iptables-save | grep -E -- '-j (KUBE|CNI)-' | each "iptables rule" || :
  our_sets | each "set of addresses"
  kubepods_cgroups | each cgroup
  for path in "$STATE" "$SOCKETS" /var/lib/kubelet/device-plugins; do
    [[ ! -e $path ]] || echo "folder: $path"
  done
  our_cni_results | each "CNI result"
}

found=$(list)
[[ -z $found ]] || {
  echo "$found"
  exit 1
}
