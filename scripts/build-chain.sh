#!/usr/bin/env bash
# build-chain.sh [--scripts] [BLOCKS]: makes a CKB chain of so many blocks beside the genesis block, for the benchmark to import,
# in the cache, and prints its folder. A minute the first time; builds CKB first where there is none (half an hour).
#
# The blocks are empty, 40,000 of them. With --scripts they hold transactions that are nothing but work for CKB-VM, and 500 are
# enough: each runs for a hundredth of a second.
#
#   config/        ckb.toml, specs, …: what `ckb import -C` needs. The specs too: each dev chain has a genesis of its own
#   blocks.jsonl   what `ckb export` wrote
#   tip            the hash of the last block
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"

KIND=chain
FILL=fill_with_nothing
BLOCKS=40000
if [[ ${1:-} == --scripts ]]; then
  KIND=scripts
  FILL=fill_with_scripts
  BLOCKS=500
  # Another script is another chain.
  SCRIPT=-$(cat "$ROOT"/tests/script/src/*.rs "$ROOT/scripts/build-chain.jq" | sha256sum | head -c 8)
  shift
fi
BLOCKS=${1:-$BLOCKS}
[[ $BLOCKS =~ ^[1-9][0-9]*$ ]] || die "usage: build-chain.sh [--scripts] [BLOCKS]"
CHAIN_DIR=$CACHE/ckb-$CKB-$KIND${SCRIPT:-}-$BLOCKS
LOG=$CACHE/log/$KIND.log
BIN=$CACHE/ckb-$CKB/bin/ckb
# Of the key that every dev chain's specification publishes.
MINERS_LOCK=0xc8328aabcd9b9e8e64fbc566c4385c3bdeb219d7
# Of another such key: to whom cells were issued that here belong to who runs the script.
OWNERS_LOCK=0x470dcdc5e44064909650113a274b3b36aecb6dc7
# Away from CKB's own, which a node on this machine may listen on.
PORT=18114
# Few enough that a request ends in seconds.
EPOCHS_AT_ONCE=200
# In each block, so that they are verified side by side.
TRANSACTIONS=4
# Of a cell, in shannons, each time that it is spent: ten times what the pool asks for.
FEE=10000
# Blocks until there are cells to spend.
SPLIT=3

[[ $KIND != scripts || $BLOCKS -gt $SPLIT ]] || die "a chain with scripts has more than $SPLIT blocks"

has_chain() { [[ -e $CHAIN_DIR/tip ]]; }

build() {
  local tmp=$1 node
  node=$tmp/node
  run_logged "$LOG" "$BIN" init --chain dev --ba-arg "$MINERS_LOCK" --rpc-port "$PORT" --p2p-port 0 -C "$node"
  [[ $KIND != scripts ]] || issue_to_script "$node"
  mkdir "$tmp/config"
  cp -r "$node"/{ckb.toml,default.db-options,specs} "$tmp/config"
  # Blocks on demand: a miner would be paced by its polling, and take ten minutes. What was sent is in the next one.
  sed -i -e 's/^modules = \["Net", /&"IntegrationTest", /' -e 's/^\[block_assembler\]$/&\nupdate_interval_millis = 0/' "$node/ckb.toml"
  mine "$node"
  step "exporting"
  run_logged "$CACHE/log/export.log" "$BIN" export -C "$node" --to "$BLOCKS" --target "$tmp"
  # Fewer where the node has refused something, or has ended.
  [[ $(wc -l < "$tmp/ckb_dev-0-$BLOCKS.jsonl") == $((BLOCKS + 1)) ]] || die "the node made too few blocks (what it said: $LOG)"
  mv "$tmp"/ckb_dev-0-"$BLOCKS".jsonl "$tmp/blocks.jsonl"
  tail -n 1 "$tmp/blocks.jsonl" | jq --raw-output .header.hash > "$tmp/tip"
  rm -r "$node"
}

# issue_to_script DIR: has the genesis block hold the script, and a cell that is spent by running it.
issue_to_script() {
  local cells=$1/specs/cells spec=$1/specs/dev.toml
  mkdir "$cells"
  run_logged "$LOG" rustc --edition 2024 --out-dir "$cells" "$ROOT/tests/script/src/elf.rs"
  "$cells/elf" > "$cells/script"
  rm "$cells/elf"
  sed -i '/^\[genesis.system_cells_lock\]$/i [[genesis.system_cells]]\
file = { file = "cells/script" }\
create_type_id = false\
capacity = 10_000_0000_0000\
' "$spec"
  # By the script's own hash, for the newest virtual machine.
  LOCK=$(script_cell "$1" | jq --compact-output '{code_hash: .data_hash, hash_type: "data2", args: "0x"}')
  sed -i -z "s/\"[^\"]*\"\nlock.args = \"$OWNERS_LOCK\"\nlock.hash_type = \"type\"/$(
    jq --raw-output '"\"\(.code_hash)\"\\nlock.args = \"\(.args)\"\\nlock.hash_type = \"\(.hash_type)\""' <<< "$LOCK"
  )/" "$spec"
  CODE=$(script_cell "$1" | jq --compact-output '{tx_hash, index: "0x\(.index)"}')
}

# script_cell DIR: what the genesis block says of the script.
script_cell() { "$BIN" list-hashes -C "$1" --format json | jq '.ckb_dev.system_cells[-1]'; }

# mine DIR: runs the node until it has the blocks.
mine() {
  local dir=$1
  "$BIN" run -C "$dir" > "$LOG" 2>&1 &
  # shellcheck disable=SC2064  # this very process
  trap "kill -INT $! 2> /dev/null || true" EXIT
  for _ in {1..100}; do
    ! rpc get_tip_block_number > /dev/null || break
    sleep 0.1
  done
  "$FILL"
  kill -INT $!
  wait $! || true
  trap - EXIT
}

fill_with_nothing() {
  local tip
  while tip=$(rpc get_tip_block_number) && ((tip < BLOCKS)); do
    rpc generate_epochs "\"$(printf '0x%x' "$EPOCHS_AT_ONCE")\"" > /dev/null
  done
}

# The cell of the genesis block is made many, and then each transaction spends one of them.
fill_with_scripts() {
  local genesis cells capacity hash request
  genesis=$(rpc get_block_by_number '"0x0"' | jq '.transactions[0]')
  cells=$(((BLOCKS - SPLIT) * TRANSACTIONS))
  capacity=$(jq --argjson lock "$LOCK" --raw-output '.outputs[] | select(.lock == $lock).capacity' <<< "$genesis")
  capacity=$((capacity / cells - FEE))
  hash=$(requests "$capacity" "split($cells)" <<< "$genesis" | ask @- | jq --raw-output '.[0].result')
  requests "$capacity" "fill(\"$hash\"; $((BLOCKS - SPLIT)); $TRANSACTIONS)" <<< null | while read -r request; do
    [[ $(ask "$request") != *'"error"'* ]] || die "the node refuses a transaction (what it says: $LOG)"
  done
  # One that was made beside another does not count.
  while (($(rpc get_tip_block_number) < BLOCKS)); do
    rpc generate_block > /dev/null
  done
}

# requests CAPACITY FILTER: what the filter of build-chain.jq makes of the standard input, where each cell has this capacity.
requests() {
  jq --compact-output --argjson lock "$LOCK" --argjson code "$CODE" --arg capacity "$(printf '0x%x' "$1")" \
    --arg left "$(printf '0x%x' "$(($1 - FEE))")" -L "$ROOT/scripts" "include \"build-chain\"; $2"
}

# rpc METHOD [PARAMETERS]: the result; of text, without quotes.
rpc() { ask "{\"id\":1,\"jsonrpc\":\"2.0\",\"method\":\"$1\",\"params\":[${2:-}]}" | jq --exit-status --raw-output .result; }

# ask BODY: what the node answers.
ask() {
  curl --silent --fail --max-time 300 --header 'content-type: application/json' "http://127.0.0.1:$PORT" --data "$1"
}

mapfile -t packages < <(missing_packages jq=jq curl=curl)
install_packages "${packages[@]}" >&2
has_chain || "$ROOT/scripts/build-ckb.sh" >&2
provide "a chain of $BLOCKS blocks" has_chain "$CHAIN_DIR" build >&2
echo "$CHAIN_DIR"
