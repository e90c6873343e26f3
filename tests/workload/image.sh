#!/usr/bin/env bash
# image.sh rocksdb|ckb|postgresql OUT.tar: makes the image of a workload as an OCI archive, without a container engine.
#
#   rocksdb   registry.local/ckb-probe/workload:dev: /usr/bin/ckb is rocksdb_load.c; the fixtures lie beside it
#   ckb       registry.local/ckb-probe/ckb:dev: a real node and a dev chain in /etc/ckb; `ckb run` or `ckb miner` by
#             the container's arguments; with /etc/ckb-busy a miner has more blocks to make. $CKB_BIN names the node's
#             executable (default: `ckb` on PATH, else the cache)
#
#   postgresql
#             registry.local/ckb-probe/postgresql:dev: Debian's PostgreSQL 15, and in /cluster.tar a cluster for it, which
#             /usr/bin/tar unpacks, and whose user postgres nobody needs a password for
#
# None has a shell: the workload is process 1 of its container and gets its signals.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"
usage='usage: image.sh rocksdb|ckb|postgresql OUT.tar'
kind=${1:?$usage}
out=${2:?$usage}
user=65532 # nobody in particular: the images have no list of users

# Of the key that every dev chain's specification publishes.
MINERS_LOCK=0xc8328aabcd9b9e8e64fbc566c4385c3bdeb219d7
# How long the miner pretends to work on a block: about ten blocks a second; and in /etc/ckb-busy, about fifty.
BLOCK_MS=100
BUSY_BLOCK_MS=20

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

archive() { python3 "$here/../cluster/oci_archive.py" --libs --user "$user" "$out" "$@"; }

rocksdb_image() {
  "$here/../fixtures/build.sh" "$work"
  local name files=()
  for name in ckb ground-truth ground-truth-partial ground-truth-stripped wild troubled; do
    files+=("$work/$name:/usr/bin/$name")
  done
  archive registry.local/ckb-probe/workload:dev '["/usr/bin/ckb"]' "${files[@]}"
}

find_ckb() {
  local candidate candidates=("$(command -v ckb || true)" "$CACHE/ckb-$CKB/bin/ckb")
  [[ -z ${CKB_BIN:-} ]] || candidates=("$CKB_BIN")
  for candidate in "${candidates[@]}"; do
    [[ ! -x $candidate ]] || {
      realpath "$candidate"
      return
    }
  done
  die "no CKB node in ${candidates[*]}: set CKB_BIN, or build one with scripts/build-ckb.sh"
}

# set_toml FILE KEY VALUE: sets a key that must be there exactly once, or the node's defaults have changed under us.
set_toml() {
  [[ $(grep -c "^$2 = " "$1") == 1 ]] || die "$(basename "$1") has no line, or several, '$2 = …'"
  sed -i "s|^$2 = .*|$2 = $3|" "$1"
}

# The chain is made here, not in the container: its configuration is then part of a read-only image, and node and miner
# start in any order. All that changes is under /data.
ckb_image() {
  local ckb config=$work/etc file
  ckb=$(find_ckb)
  run_logged "$CACHE/log/ckb-init.log" "$ckb" init --chain dev --ba-arg "$MINERS_LOCK" -C "$config"
  for file in "$config"/{ckb,ckb-miner}.toml; do
    set_toml "$file" data_dir '"/data"'
    set_toml "$file" log_to_file false
    set_toml "$file" color false
  done
  set_toml "$config/ckb.toml" filter '"warn"' # at info, four lines a block
  set_toml "$config/ckb-miner.toml" value "$BLOCK_MS"
  set_toml "$config/ckb-miner.toml" poll_interval 10
  cp --recursive "$config" "$work/busy"
  set_toml "$work/busy/ckb-miner.toml" value "$BUSY_BLOCK_MS"
  archive registry.local/ckb-probe/ckb:dev '["/usr/bin/ckb"]' "$ckb:/usr/bin/ckb" "$config:/etc/ckb" \
    "$work/busy:/etc/ckb-busy"
}

# The cluster is made here, as initdb needs a shell; by another user than root, as it wants; and with the one time zone that needs no file.
postgresql_image() {
  local programs=/usr/lib/postgresql/15/bin share=/usr/share/postgresql/15
  [[ -x $programs/postgres ]] || die "PostgreSQL 15 is missing: run scripts/setup.sh cluster"
  chmod 755 "$work"
  install --directory --owner=postgres --group=postgres "$work/made"
  # From a folder that this user may enter.
  (cd / && TZ=GMT run_logged "$CACHE/log/initdb.log" setpriv --reuid=postgres --regid=postgres --clear-groups "$programs/initdb" \
    --no-sync --no-instructions --auth=trust --username=postgres --locale=C --encoding=UTF8 --wal-segsize=1 -D "$work/made/cluster")
  tar --create --file="$work/cluster.tar" --directory="$work/made" --owner=0 --group=0 cluster
  echo "postgres:x:$user:$user::/:" > "$work/passwd"
  archive registry.local/ckb-probe/postgresql:dev '["'$programs'/postgres"]' "$programs/postgres:$programs/postgres" \
    "$share/timezonesets:$share/timezonesets" /usr/bin/tar:/usr/bin/tar "$work/cluster.tar:/cluster.tar" "$work/passwd:/etc/passwd" \
    --dir /usr/lib/postgresql/15/lib
}

case $kind in
  rocksdb) rocksdb_image ;;
  ckb) ckb_image ;;
  postgresql) postgresql_image ;;
  *) die "$usage" ;;
esac
step "made $out ($(du -h --apparent-size "$out" | cut -f1))"
