#!/usr/bin/env bash
# load-image.sh ARCHIVE [RUN_DIR]: loads an OCI archive, as oci_archive.py makes it, into the cluster's containerd.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
archive=${1:?usage: load-image.sh ARCHIVE [RUN_DIR]}
use_run_dir "${2:-}"
need_root load-image.sh
[[ -S $CONTAINERD_SOCKET ]] || die "the cluster is not up: run $HERE/up.sh"

mkdir -p "$RUN_DIR/log"
run_logged "$RUN_DIR/log/load-image.log" ctr images import "$archive"
step "loaded $(basename "$archive") ($(du -h --apparent-size "$archive" | cut -f1))"
