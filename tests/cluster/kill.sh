#!/usr/bin/env bash
# kill.sh NAME [RUN_DIR]: kills a process of the running cluster (etcd, apiserver, controller-manager, scheduler, containerd, kubelet
# or proxy) with SIGKILL, as a crash would end it, and starts it again with the same arguments. Needs root.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
name=${1:?usage: kill.sh NAME [RUN_DIR]}
use_run_dir "${2:-}"
need_root kill.sh
lock
running "$name" || die "no $name runs of the cluster with the folder $RUN_DIR"

pid=$(< "$RUN_DIR/$name.pid")
mapfile -d '' -t command < "/proc/$pid/cmdline"
end KILL 10 "$pid" || die "$name (process $pid) does not end"
step "$name was killed"
start "$name" "${command[@]}"
case $name in
  apiserver | etcd) wait_for 90 api_ready || failed apiserver "the API server does not answer" ;;
  *) running "$name" || failed "$name" "$name does not start" ;;
esac
step "$name runs again"
