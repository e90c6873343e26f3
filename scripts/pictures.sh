#!/usr/bin/env bash
# pictures.sh [DIR]: the pictures of docs/flame-graphs.md, of a real CKB node that imports 40,000 blocks: where its CPU time goes, what
# its threads wait for, and who touches memory; and of one whose blocks run scripts. Four minutes, and half an hour where CKB has to
# be built first. Needs root.
#
# Draws to DIR, docs/pictures unless named. The profiles, and what the command line said of each, are in target/pictures.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"
need_root pictures.sh

CKB_BIN=$CACHE/ckb-$CKB/bin/ckb
PROBE=target/release/ckb-probe

# profile_import CHAIN NAME MODE TITLE: an import, and what was seen of it.
profile_import() {
  local chain=$1 name=$2 mode=$3 title=$4 data
  data=$(mktemp -d)
  cp -r "$chain/config/." "$data"
  "$CKB_BIN" import -C "$data" "$chain/blocks.jsonl" > "$data/import.log" 2>&1 &
  # It ends with the import.
  "$PROBE" profile --pid $! --mode "$mode" --duration 5m -o "$work/$name.pb.gz" 2>&1 | tee "$work/$name.txt"
  wait $!
  rm -rf "$data"
  "$PROBE" render "$work/$name.pb.gz" --title "$title" -o "$out/$name.svg"
}

out=${1:-docs/pictures}
work=target/pictures
mkdir -p "$out" "$work"
empty=$(scripts/build-chain.sh)
scripts=$(scripts/build-chain.sh --scripts)
cargo build --locked --release --quiet --bin ckb-probe
profile_import "$empty" import-cpu cpu "CKB $CKB imports 40,000 blocks: where the CPU time goes"
profile_import "$empty" import-off-cpu off-cpu "CKB $CKB imports 40,000 blocks: what its threads wait for"
profile_import "$empty" import-memory memory "CKB $CKB imports 40,000 blocks: who touches memory for the first time"
profile_import "$scripts" import-scripts cpu "CKB $CKB imports 500 blocks that run scripts: where the CPU time goes"
step "drawn: $out"
