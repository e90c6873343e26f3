#!/usr/bin/env bash
# reboot.sh [RUN_DIR]: what a loss of power does to the node: every process of the cluster and of its pods is killed at once, mounts,
# links, chains, cgroups and what was under /run are gone, and everything starts again with the same arguments and the same
# disk. The machine itself goes on, and so does its kernel. Returns when the node is ready. Needs root.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
use_run_dir "${1:-}"
need_root reboot.sh

main() {
  lock
  note_commands
  local pids
  mapfile -t pids < <({ our_pids; container_pids; } | sort -nu)
  end KILL 10 "${pids[@]}" || die "these processes do not end: ${pids[*]}"
  step "the node has lost its power"
  remove_mounts
  remove_links
  remove_chains iptables
  remove_chains ip6tables
  remove_sets
  remove_cgroups
  rm -rf "${SOCKETS:?}"/*
  start_again etcd apiserver
  wait_for 90 api_ready || failed apiserver "the API server does not answer"
  start_again controller-manager scheduler containerd
  wait_for 30 containerd_answers || failed containerd "containerd does not answer"
  # The node's last heartbeat says that it is ready, and may be half a minute old.
  local before
  before=$(heartbeat)
  start_again kubelet proxy
  wait_for 90 ready_since "$before" || failed kubelet "the node does not become ready"
  step "the node is up again"
}

# COMMAND[name]: the file with its arguments, each ended by a NUL.
declare -A COMMAND
note_commands() {
  local name
  noted=$(mktemp -d)
  trap 'rm -rf "$noted"' EXIT
  for name in etcd apiserver controller-manager scheduler containerd kubelet proxy; do
    running "$name" || die "no $name runs of the cluster with the folder $RUN_DIR"
    COMMAND[$name]=$noted/$name
    cat "/proc/$(< "$RUN_DIR/$name.pid")/cmdline" > "${COMMAND[$name]}"
  done
}

start_again() {
  local name command
  for name in "$@"; do
    mapfile -d '' -t command < "${COMMAND[$name]}"
    start "$name" "${command[@]}"
  done
}

heartbeat() {
  kubectl get node "$NODE" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}'
}

ready_since() { [[ $(heartbeat 2> /dev/null) > $1 ]] && node_ready; }

main
