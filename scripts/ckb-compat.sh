#!/usr/bin/env bash
# ckb-compat.sh VERSION...: whether ckb-probe measures these releases of CKB, of which `newest` is the newest. Each is built, or taken from the cache; then it mines on a chain
# of its own for some seconds, and is asked for its symbols, its calls of RocksDB and its blocks. What came out is the release's row in
# docs/compatibility.md. Needs root, and scripts/setup.sh build before; a release that is not in the cache takes half an hour.
#
# PROBE names a ckb-probe that is built already. Ends with one line: N passed, N failed.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
(($# > 0)) || die "usage: ckb-compat.sh VERSION..., such as $CKB"
need_root ckb-compat.sh
cd "$here/.."

PAGE=docs/compatibility.md
# Of the key that every dev chain's specification publishes.
MINERS_LOCK=0xc8328aabcd9b9e8e64fbc566c4385c3bdeb219d7
# Away from CKB's own, which a node on this machine may listen on.
PORT=18414
# Ten blocks a second, about.
BLOCK_MS=100
# How long each release is looked at.
SECONDS_OF_IT=10
# What any CKB node calls as it makes blocks.
CALLED=(Get TxnGet TxnPut TxnCommit IteratorNew)
# The first release that verifies blocks in a thread of their own, by which the kind chain knows them.
CHAIN_SINCE=0.118

work=$(mktemp -d)
children=()
trap 'stop; rm -rf "$work"' EXIT

# stop: ends node and miner, and waits until they are gone.
stop() {
  ((${#children[@]} == 0)) || kill "${children[@]}" 2> /dev/null || true
  wait
  children=()
}

# start CKB DIR: has the node run that mines, and its process id in $node.
start() {
  local ckb=$1 dir=$2
  run_logged "$work/init.log" "$ckb" init --chain dev --ba-arg "$MINERS_LOCK" --rpc-port "$PORT" --p2p-port 0 -C "$dir"
  sed -i "s/^value = .*/value = $BLOCK_MS/; s/^poll_interval = .*/poll_interval = 10/" "$dir/ckb-miner.toml"
  "$ckb" run -C "$dir" > "$work/node.log" 2>&1 &
  node=$!
  children+=("$node")
  "$ckb" miner -C "$dir" > "$work/miner.log" 2>&1 &
  children+=("$!")
  for _ in {1..300}; do
    (($(tip) < 3)) || return 0
    kill -0 "$node" 2> /dev/null || break
    sleep 0.2
  done
  tail -n 5 "$work/node.log" "$work/miner.log"
  die "the node makes no blocks"
}

# tip: the height of the node's chain, 0 while it does not answer.
tip() {
  local answer
  answer=$(curl --silent --max-time 5 --header 'Content-Type: application/json' \
    --data '{"id":1,"jsonrpc":"2.0","method":"get_tip_block_number","params":[]}' "http://127.0.0.1:$PORT" |
    jq --raw-output .result) || true
  [[ $answer == 0x* ]] || answer=0x0
  echo $((answer))
}

# look VERSION: the release's row, on the third file descriptor.
look() {
  local version=$1 ckb=$CACHE/ckb-$1/bin/ckb missing calls blocks verified operation count before after chain=()
  start "$ckb" "$work/$version"
  "$probe" symbols --pid "$node" > "$work/symbols"
  missing=$(awk '/not found$/ { printf "%s`%s`", separator, $2; separator = ", " }' "$work/symbols")
  local options=(--pid "$node" --duration "${SECONDS_OF_IT}s" --interval 1s --on-breach report --json)
  before=$(tip)
  "$probe" chain "${options[@]}" > "$work/chain" &
  chain=("$!")
  "$probe" rocksdb "${options[@]}" > "$work/rocksdb"
  wait "${chain[@]}" || true # it has an exit code of its own where there was no block
  after=$(tip)
  stop
  calls=$(last rocksdb '.figures.count | tonumber' | awk '{ total += $1 } END { print total + 0 }')
  blocks=$(last chain 'select(.row == "accepted") | .figures.count | tonumber')
  verified=$(last chain 'select(.row == "accepted") | .figures.verification // empty')
  if [[ -n $verified ]]; then verified=told; else verified="not told"; fi
  for operation in "${CALLED[@]}"; do
    count=$(last rocksdb "select(.row == \"$operation\") | .figures.count | tonumber")
    ((${count:-0} > 0)) || die "no call of $operation was counted, in $SECONDS_OF_IT s and $((after - before)) blocks"
  done
  if is_at_least "$version" "$CHAIN_SINCE"; then
    # It was attached a little later than the node was asked, and detached a little earlier.
    ((${blocks:-0} > (after - before) / 2 && ${blocks:-0} <= after - before)) ||
      die "chain saw ${blocks:-0} blocks, and the node made $((after - before))"
  else
    ((${blocks:-0} == 0)) || die "chain saw $blocks blocks, and should know none before $CHAIN_SINCE"
  fi
  echo "| $version | $calls | ${blocks:-0} of $((after - before)) | $verified | ${missing:-none} |" >&3
}

# last FILE FILTER: of each row what was said last.
last() { jq --slurp --raw-output "group_by(.row) | map(last)[] | $2" "$work/$1"; }

# tell VERSION ROW: puts the row in its place on the page, instead of the one that was there.
tell() {
  awk -v row="$2" -v head="| $1 |" '
    /^\| CKB \|/ { is_table = 1 }
    is_table && index($0, head) == 1 { next }
    is_table && !/^\|/ { print row; is_table = 0 }
    { print }' "$PAGE" > "$work/page"
  # The newest first.
  awk -v sort="sort --version-sort --reverse" '
    /^\| [0-9]/ { print | sort; next }
    { close(sort); print }' "$work/page" > "$PAGE"
}

# newest: the newest release that the registry has.
newest() {
  local found
  found=$(cargo info --color never ckb 2> /dev/null | sed -nE 's/^version: ([0-9.]+)( .*latest ([0-9.]+).*)?$/\3 \1/p')
  read -r found _ <<< "$found"
  [[ -n $found ]] || die "cargo info ckb does not say which release is the newest"
  echo "$found"
}

versions=()
for version; do
  [[ $version != newest ]] || version=$(newest)
  scripts/build-ckb.sh "$version"
  versions+=("$version")
done
probe=${PROBE:-target/${CKB_PROBE_PROFILE:-release}/ckb-probe}
[[ -n ${PROBE:-} ]] || cargo build --locked --profile "${CKB_PROBE_PROFILE:-release}" --bin ckb-probe
passed=0 failed=0
for version in "${versions[@]}"; do
  step "CKB $version"
  # Not as a condition, in which a failure would not end it.
  set +e
  (
    set -e
    look "$version"
  ) 3> "$work/row"
  status=$?
  set -e
  if ((status == 0)); then
    tell "$version" "$(cat "$work/row")"
    cat "$work/row"
    passed=$((passed + 1))
  else
    printf 'FAILED  CKB %s\n' "$version"
    failed=$((failed + 1))
  fi
done
printf '\n%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
