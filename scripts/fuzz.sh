#!/usr/bin/env bash
# fuzz.sh [SECONDS]: feeds crafted ELF files to the search of a target's files, beginning with node-agent/fuzz/seeds. Without
# SECONDS it makes 20,000 runs, for 30 seconds at most, which takes a minute more when it has to be built first.
#
# What it learns is kept in target/fuzz/corpus for the next time. A file that breaks something is left in
# target/fuzz/artifacts: mend the code, and add the file to node-agent/fuzz/seeds/elf, which unit tests read too.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

limits=(-runs=20000 -max_total_time=30)
case ${1:-} in
  '') ;;
  [1-9]*) limits=(-max_total_time="$1") ;;
  *) die "usage: fuzz.sh [SECONDS]" ;;
esac

export PATH=$CACHE/cargo-fuzz-$CARGO_FUZZ/bin:$PATH
command -v cargo-fuzz > /dev/null || die "cargo-fuzz is missing: run scripts/setup.sh fuzz"

# Watching what a run reaches takes a nightly compiler, or one that is made to believe it.
if command -v rustup > /dev/null && rustup which --toolchain nightly rustc > /dev/null 2>&1; then
  export RUSTUP_TOOLCHAIN=nightly
else
  export RUSTC_BOOTSTRAP=1
fi

# Debian's compilers come without what watches over addresses.
libraries=$("${RUSTC:-rustc}" --print sysroot)/lib/rustlib/$(uname -m)-unknown-linux-gnu/lib
sanitizer=none
! compgen -G "$libraries/librustc*_rt.asan.a" > /dev/null || sanitizer=address

OUT=$PWD/target/fuzz
mkdir -p "$OUT/corpus" "$OUT/artifacts"
fuzz=(--fuzz-dir node-agent/fuzz --target-dir "$OUT/build" --sanitizer "$sanitizer" elf)

cargo fetch --quiet --locked --manifest-path node-agent/fuzz/Cargo.toml
run_logged "$OUT/build.log" cargo fuzz build "${fuzz[@]}"
step "fuzzing the search of ELF files"
# Crafted files come to 64 KiB here, and a search holds a piece of one: memory is limited to show it. Time is limited by the
# clock on the wall, which runs on while a busy machine does other things.
run_logged "$OUT/elf.log" cargo fuzz run "${fuzz[@]}" "$OUT/corpus" node-agent/fuzz/seeds/elf -- \
  "${limits[@]}" -max_len=65536 -rss_limit_mb=512 -malloc_limit_mb=4 -timeout=60 -artifact_prefix="$OUT/artifacts/"
step "$(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 files searched in \2 s, none broke it/p' "$OUT/elf.log")"
