#!/usr/bin/env bash
# book.sh: docs/ as a book with search, in target/book. Fails at whatever mdBook warns of, and at a link that leads nowhere.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"
PATH=$CACHE/mdbook-$MDBOOK/bin:$PATH
OUT=target/book

rm -rf "$OUT"
step "mdBook $MDBOOK writes $OUT"
mkdir -p target
mdbook build > target/book.log 2>&1 || {
  cat target/book.log >&2
  die "mdBook failed"
}
! grep --extended-regexp '^ *(WARN|ERROR)|\[(WARN|ERROR)\]' target/book.log >&2 || die "mdBook has something to say: all of it is in target/book.log"
[[ -s $OUT/index.html && -n $(find "$OUT" -maxdepth 1 -name 'searchindex*' -print -quit) ]] || die "$OUT is not a book with search"
step "following its links"
cargo test --quiet --locked --package ckb-probe-tests --test documentation -- --ignored
step "$OUT/index.html"
