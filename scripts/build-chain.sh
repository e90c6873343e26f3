#!/usr/bin/env bash
# build-chain.sh [BLOCKS]: makes a CKB chain of so many blocks beside the genesis block, for the benchmark to import, in
# the cache, and prints its folder. Half a minute the first time; builds CKB first where there is none (half an hour).
#
#   config/        ckb.toml, specs, …: what `ckb import -C` needs. The specs too: each dev chain has a genesis of its own
#   blocks.jsonl   what `ckb export` wrote
#   tip            the hash of the last block
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$(realpath "$0")")/lib.sh"

BLOCKS=${1:-40000}
[[ $BLOCKS =~ ^[1-9][0-9]*$ ]] || die "usage: build-chain.sh [BLOCKS]"
CHAIN_DIR=$CACHE/ckb-$CKB-chain-$BLOCKS
LOG=$CACHE/log/chain.log
BIN=$CACHE/ckb-$CKB/bin/ckb
# Of the key that every dev chain's specification publishes.
MINERS_LOCK=0xc8328aabcd9b9e8e64fbc566c4385c3bdeb219d7
# Away from CKB's own, which a node on this machine may listen on.
PORT=18114
# Few enough that a request ends in seconds.
EPOCHS_AT_ONCE=200

has_chain() { [[ -e $CHAIN_DIR/tip ]]; }

build() {
  local tmp=$1 node
  node=$tmp/node
  run_logged "$LOG" "$BIN" init --chain dev --ba-arg "$MINERS_LOCK" --rpc-port "$PORT" --p2p-port 0 -C "$node"
  mkdir "$tmp/config"
  cp -r "$node"/{ckb.toml,default.db-options,specs} "$tmp/config"
  # Blocks on demand: a miner would be paced by its polling, and take ten minutes.
  sed -i 's/^modules = \["Net", /&"IntegrationTest", /' "$node/ckb.toml"
  mine "$node"
  step "exporting"
  run_logged "$LOG" "$BIN" export -C "$node" --to "$BLOCKS" --target "$tmp"
  mv "$tmp"/ckb_dev-0-"$BLOCKS".jsonl "$tmp/blocks.jsonl"
  tail -n 1 "$tmp/blocks.jsonl" | jq --raw-output .header.hash > "$tmp/tip"
  rm -r "$node"
}

# mine DIR: runs the node until it has the blocks.
mine() {
  local dir=$1 tip
  "$BIN" run -C "$dir" > "$LOG" 2>&1 &
  # shellcheck disable=SC2064  # this very process
  trap "kill -INT $! 2> /dev/null || true" EXIT
  for _ in {1..100}; do
    ! tip=$(rpc get_tip_block_number) || break
    sleep 0.1
  done
  while tip=$(rpc get_tip_block_number) && ((tip < BLOCKS)); do
    rpc generate_epochs "\"$(printf '0x%x' "$EPOCHS_AT_ONCE")\"" > /dev/null
  done
  kill -INT $!
  wait $! || true
  trap - EXIT
}

# rpc METHOD [PARAMETERS]: the result, without quotes.
rpc() {
  curl --silent --fail --max-time 300 --header 'content-type: application/json' "http://127.0.0.1:$PORT" \
    --data "{\"id\":1,\"jsonrpc\":\"2.0\",\"method\":\"$1\",\"params\":[${2:-}]}" | jq --exit-status --raw-output .result
}

mapfile -t packages < <(missing_packages jq=jq curl=curl)
install_packages "${packages[@]}" >&2
has_chain || "$(dirname "$(realpath "$0")")/build-ckb.sh" >&2
provide "a chain of $BLOCKS blocks" has_chain "$CHAIN_DIR" build >&2
echo "$CHAIN_DIR"
