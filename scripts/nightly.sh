#!/usr/bin/env bash
# nightly.sh [PART]...: what takes too long for a gate, one part after the other, whatever becomes of each; then a table of how each
# ended and how long it took, which is also in target/nightly/report.md, beside what each part printed. Needs root, and the machine for
# itself for eight hours.
#
#   soak           an hour of everything that goes wrong
#   fuzz           ten minutes for each fuzz target
#   kernels        each kind on Linux 6.1, 6.12 and 7.2, each also PREEMPT_RT, emulated, and on this machine's own: some hours
#   kubernetes     the end-to-end tests on the oldest Kubernetes that is enough
#   capture        the end-to-end test whose load must be as usual for a quarter of an hour before a fault is planted in it
#   scale          the operator beside 1,000 nodes, and other loads
#   upgrade        an earlier release, upgraded to this one and this one downgraded again, while it measures
#   bench          what probing costs and how true its figures are, with each bound that it misses a failure
#   book           docs/ as a book, by mdBook, with each of its links followed
#   browser        flame graphs and reports in headless Chromium
#   report         a report of two days, drawn within five seconds
#   binding        what Fiber's node and CKB's light client do with RocksDB, counted, by the binding that they have, which is compiled
#   krew           the plugin of kubectl, installed by krew without a network
#   amplification  a RocksDB whose compactions write 55 bytes for each that it flushes, of 256 MiB, and one with levels: 18 GB in memory
set -uo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
need_root nightly.sh
cd "$ROOT" || exit 1

OUT=target/nightly

part() {
  case $1 in
    soak) make soak MINUTES=60 ;;
    fuzz) make fuzz ;;
    kernels) make test-kernels ;;
    kubernetes) make test-kubernetes ;;
    capture) scripts/setup.sh build cluster && scripts/e2e.sh rocksdb --only capture ;;
    scale) make scale ;;
    upgrade) scripts/setup.sh build cluster && scripts/upgrade.sh ;;
    bench) make bench ROWS=--strict ;;
    book) make book ;;
    browser) make test-browser ;;
    report)
      scripts/setup.sh build &&
        cargo test --locked --release --package ckb-probe-report --lib within_five_seconds -- --ignored --nocapture
      ;;
    binding)
      mapfile -t packages < <(binding_packages)
      install_packages "${packages[@]}" && scripts/setup.sh build &&
        cargo test --locked --package ckb-probe-tests --test binding -- --ignored --nocapture --test-threads 1
      ;;
    krew) scripts/setup.sh build krew && scripts/krew.sh ;;
    amplification)
      scripts/setup.sh build &&
        cargo test --locked --package ckb-probe-tests --test amplification -- --ignored --nocapture --test-threads 1
      ;;
    *) die "usage: nightly.sh [soak|fuzz|kernels|kubernetes|capture|scale|upgrade|bench|book|browser|report|binding|krew|amplification]..." ;;
  esac
}

mkdir -p "$OUT"
(($# > 0)) || set -- soak fuzz kernels kubernetes capture scale upgrade bench book browser report binding krew amplification
failed=0
report="| part | ended | after |"$'\n'"| --- | --- | --- |"$'\n'
for name in "$@"; do
  step "$name"
  begin=$SECONDS
  if part "$name" 2>&1 | tee "$OUT/$name.log"; then ended=well; else
    ended=failed
    failed=$((failed + 1))
  fi
  report+="| $name | $ended | $(((SECONDS - begin) / 60)) min |"$'\n'
done
printf '\n%s\n%s: %d of %d parts failed\n' "$report" "$(git describe --always --dirty)" "$failed" "$#" | tee "$OUT/report.md"
((failed == 0))
