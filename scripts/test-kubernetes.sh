#!/usr/bin/env bash
# test-kubernetes.sh [OPTION...]: every end-to-end scenario on the oldest Kubernetes that is enough, which is built once (10 minutes) and
# kept in the cache. The options are those of the program e2e, such as --only refusals. Needs root, and scripts/setup.sh build cluster
# before; no other cluster may be up. Part of `make nightly`.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
need_root test-kubernetes.sh
export CKB_PROBE_KUBERNETES=$OLDEST_KUBERNETES
"$here/setup.sh" cluster
(
  cluster_tools
  ! kubectl get --raw /readyz > /dev/null 2>&1 || die "a cluster is up: take it down before, with tests/cluster/down.sh '$run'"
)
exec "$here/e2e.sh" rocksdb "$@"
