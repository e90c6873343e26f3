#!/usr/bin/env bash
# tag-image.sh NAME ANOTHER [RUN_DIR]: has an image of the cluster's containerd also under another name, whatever gets the first one later.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$(dirname "$(realpath "$0")")/cluster.sh"
usage='usage: tag-image.sh NAME ANOTHER [RUN_DIR]'
name=${1:?$usage}
another=${2:?$usage}
use_run_dir "${3:-}"
need_root tag-image.sh

run_logged "$RUN_DIR/log/load-image.log" ctr images tag --force "$name" "$another"
