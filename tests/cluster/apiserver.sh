#!/usr/bin/env bash
# apiserver.sh stop|start [RUN_DIR]: stops or starts the API server of the running cluster, and nothing else.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
use_run_dir "${2:-}"
need_root apiserver.sh
lock
running etcd || die "no cluster is up with the folder $RUN_DIR: run $HERE/up.sh"

case ${1:-} in
  stop)
    stop apiserver
    step "the API server is stopped"
    ;;
  start)
    running apiserver || start_apiserver
    step "the API server answers"
    ;;
  *) die "usage: apiserver.sh stop|start [RUN_DIR]" ;;
esac
