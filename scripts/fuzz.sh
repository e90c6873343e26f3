#!/usr/bin/env bash
# fuzz.sh [SECONDS [TARGET]...]: feeds crafted ELF files to the search of a target's files, crafted notes to the search for USDT probes,
# crafted cgroups and tables of mounts to whose process it is, crafted profiles to the reader of pprof, and crafted tables, stacks and
# registers to the unwinder, and texts with spans to their reader, beginning with node-agent/fuzz/seeds; and to the operator crafted CkbProbes, reports and parts of profiles,
# beginning with operator/fuzz/seeds: for so many seconds each, or 20,000 runs and 30 seconds at most. Building it first takes some
# minutes more.
#
# What it learns is kept in target/fuzz/corpus for the next time. A file that breaks something is left in target/fuzz/artifacts: mend
# the code, and add the file to the target's folder of seeds, which `make test` reads.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

limits=(-runs=20000 -max_total_time=30)
case ${1:-} in
  '') ;;
  [1-9]*) limits=(-max_total_time="$1") ;;
  *) die "usage: fuzz.sh [SECONDS [TARGET]...]" ;;
esac
chosen=" ${*:2} "

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
mkdir -p "$OUT/artifacts"

# fuzz CRATE TARGET WHAT OPTIONS...: a target's runs. Time is limited by the clock on the wall, which runs on while a busy machine does
# other things.
fuzz() {
  local crate=$1 target=$2 what=$3 corpus=$OUT/corpus
  local fuzz=(--fuzz-dir "$crate/fuzz" --target-dir "$OUT/build" --sanitizer "$sanitizer")
  shift 3
  [[ $chosen == "  " || $chosen == *" $target "* ]] || return 0
  [[ $target == elf ]] || corpus=$OUT/corpus-$target
  mkdir -p "$corpus"
  run_logged "$OUT/build.log" cargo fuzz build "${fuzz[@]}" "$target"
  step "fuzzing $what"
  run_logged "$OUT/$target.log" cargo fuzz run "${fuzz[@]}" "$target" "$corpus" "$crate/fuzz/seeds/$target" -- \
    "${limits[@]}" -rss_limit_mb=512 -timeout=60 -artifact_prefix="$OUT/artifacts/" "$@"
  step "$(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 files read in \2 s, none broke it/p' "$OUT/$target.log")"
}

for crate in node-agent operator; do cargo fetch --quiet --locked --manifest-path "$crate/fuzz/Cargo.toml"; done
# Crafted files come to 64 KiB here, and a search holds a piece of one: memory is limited to show it.
fuzz node-agent elf "the search of ELF files" -max_len=65536 -malloc_limit_mb=4
# As long as a path may be, some times.
fuzz node-agent place "what cgroups and mounts say" -max_len=16384 -malloc_limit_mb=4
# A profile of 4 KiB unzips to a megabyte at most.
fuzz node-agent pprof "the reader of profiles" -max_len=4096 -malloc_limit_mb=16
# Tables of 64 KiB are a small file's. What they are looked through for takes no more than a few times their size.
fuzz node-agent unwind "the unwinder" -max_len=65536 -malloc_limit_mb=16 -timeout=10
# A site takes some hundred bytes of memory, and a note of one twenty of the file.
fuzz node-agent usdt "the notes of USDT probes" -max_len=16384 -malloc_limit_mb=4
# A program hands over 2 KiB at most.
fuzz node-agent zipkin "the reader of spans that programs emit" -max_len=2048 -malloc_limit_mb=4
# Objects of the API come to a megabyte; what is made of one is not much more.
fuzz operator ckb_probe "the reading of CkbProbes" -max_len=16384 -malloc_limit_mb=16
fuzz operator part "the merging of parts of profiles" -max_len=16384 -malloc_limit_mb=64
fuzz operator report "what is made of reports" -max_len=65536 -malloc_limit_mb=64
