#!/usr/bin/env bash
# upgrade.sh [COMMIT]: an earlier release measures on the local cluster a target that counts its own calls, is upgraded to this one by
# `helm upgrade`, and this one downgraded again; writes target/upgrade/report.md. docs/install.md has how, docs/SPECIFICATION.md what is asked of
# it. Needs root, and scripts/setup.sh build cluster before. Part of `make nightly`.
#
# COMMIT is by default the newest tag before this commit, or while there is none the last merge of at least a day ago. The image of that is
# built in a copy of its sources and kept in the cache, by its commit, which takes ten minutes once; OLD_IMAGE names an archive to be used
# in its place, and IMAGE one for this commit's. CKB_PROBE_PROFILE=ci builds both in less time. The cluster is taken down in the end unless
# KEEP=1.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
need_root upgrade.sh
cd "$here/.."
# There is one cluster on a machine.
alone "$@"
cluster_tools
OUT=target/upgrade
NAME=registry.local/ckb-probe/ckb-probe

main() {
  local commit image
  commit=$(git rev-parse --short "${1:-$(earlier)}")
  image=${IMAGE:-target/images/ckb-probe.tar}
  step "building the upgrade test: from $commit to what is here"
  cargo build --locked --quiet --workspace --bin upgrade
  rm -rf "${OUT:?}/$commit"
  mkdir -p "$OUT/$commit"
  git archive "$commit" charts config/samples | tar --extract --directory "$OUT/$commit"
  old_image "$commit"
  [[ -n ${IMAGE:-} ]] || scripts/image.sh "$image"
  tests/workload/image.sh rocksdb target/images/rocksdb.tar

  ! kubectl get --raw /readyz > /dev/null 2>&1 || die "a cluster is up: take it down before, with tests/cluster/down.sh '$run'"
  [[ ${KEEP:-} == 1 ]] || trap 'tests/cluster/down.sh "$run"' EXIT
  tests/cluster/up.sh "$run"
  tests/cluster/load-image.sh target/images/rocksdb.tar "$run"
  # Both archives name their image :dev.
  tests/cluster/load-image.sh "$OLD_IMAGE" "$run"
  tests/cluster/tag-image.sh "$NAME:dev" "$NAME:earlier" "$run"
  tests/cluster/load-image.sh "$image" "$run"
  # Every call is to be counted, whatever that costs; and status and metrics are to be close to each other.
  cat > "$OUT/values.yaml" << YAML
image: {repository: $NAME}
agent: {sysAdmin: $(sys_admin_needed), maxOverheadPercent: 0}
limits: {minReportInterval: 1s}
YAML
  target/debug/upgrade --earlier "$OUT/$commit" --earlier-tag earlier --tag dev --values "$OUT/values.yaml"
}

# earlier: the release before this commit.
earlier() {
  git describe --tags --abbrev=0 HEAD^ 2> /dev/null || git rev-list --first-parent --max-count=1 --before='1 day ago' HEAD
}

# old_image COMMIT: sets OLD_IMAGE to the archive of that release.
old_image() {
  [[ -z ${OLD_IMAGE:-} ]] || return 0
  local dir=$CACHE/release-$1-${CKB_PROBE_PROFILE:-release}
  OLD_IMAGE=$dir/ckb-probe.tar
  provide "the image of $1 (10 minutes)" has_old_image "$dir" build_old_image "$1"
}

has_old_image() { [[ -e $OLD_IMAGE ]]; }

# build_old_image TMP COMMIT
build_old_image() {
  mkdir "$1/source"
  git archive "$2" | tar --extract --directory "$1/source"
  run_logged "$CACHE/log/release-$2.log" "$1/source/scripts/image.sh" "$(realpath "$1")/ckb-probe.tar"
  rm -rf "$1/source"
}

main "$@"
