#!/usr/bin/env bash
# build-ckb.sh [--profiling] [VERSION]: builds the real CKB node that the end-to-end tests probe, or another release of it, into the cache.
# With --profiling also the same with its feature of that name, which has jemalloc's own profiles, and jeprof beside it. Half an hour the
# first time, some minutes more for both, nothing after that.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$(realpath "$0")")/lib.sh"

PROFILING=
if [[ ${1:-} == --profiling ]]; then
  PROFILING=1
  shift
fi
CKB=${1:-$CKB}
CKB_DIR=$CACHE/ckb-$CKB
LOG=$CACHE/log/ckb.log
# Kept until the build is through, so that an interrupted one goes on where it was.
TARGET_DIR=$CACHE/build/ckb-$CKB

# Rust 1.80 and later refuse earlier releases of the crate time, as lock files of CKB before 0.119 name: they get this one.
TIME=0.3.36

build() {
  local builder=$BASHPID # taken here: after & it would be the reporter's own
  report_progress "$builder" &
  export CARGO_TARGET_DIR=$TARGET_DIR
  if is_at_least "$CKB" 0.119; then
    cargo_install "$1" "$LOG" ckb "$CKB"
  else
    local source=$TARGET_DIR/source
    rm -rf "$source"
    mkdir -p "$TARGET_DIR"
    # Cargo gets the source for that, and keeps it there.
    run_logged "$LOG" cargo info --quiet "ckb@$CKB"
    cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"ckb-$CKB" "$source"
    rm -f "$source/rust-toolchain.toml" # of the Rust that CKB was built with then
    run_logged "$LOG" env -C "$source" cargo update --quiet --precise "$TIME" time
    run_logged "$LOG" cargo install --path "$source" --locked --root "$1"
  fi
}

# What has no profiles compiles to the same but for jemalloc and what names it.
build_profiling() {
  local builder=$BASHPID jeproves
  report_progress "$builder" &
  CARGO_TARGET_DIR=$TARGET_DIR cargo_install "$1" "$LOG" ckb "$CKB" --features profiling
  jeproves=("$TARGET_DIR"/release/build/tikv-jemalloc-sys-*/out/build/bin/jeprof)
  cp "${jeproves[0]}" "$1/bin/"
}

# report_progress PID: a line a minute, as long as PID runs.
report_progress() {
  while ! timeout 60 tail --pid="$1" -f /dev/null; do
    step "$(grep -c '^ *Compiling' "$LOG") crates begun, the latest $(sed -n 's/^ *Compiling //p' "$LOG" | tail -n 1)"
  done
}

has_ckb() { [[ -x $CKB_DIR/bin/ckb ]]; }
has_profiling() { [[ -x $CKB_DIR-profiling/bin/ckb && -e $CKB_DIR-profiling/bin/jeprof ]]; }

if has_ckb && { [[ -z $PROFILING ]] || has_profiling; }; then exit 0; fi
mapfile -t packages < <(binding_packages && missing_packages libssl-dev=/usr/include/openssl/ssl.h)
install_packages "${packages[@]}"
provide "CKB $CKB: half an hour on two cores, most of it RocksDB" has_ckb "$CKB_DIR" build
[[ -z $PROFILING ]] ||
  provide "CKB $CKB with profiles of its allocator" has_profiling "$CKB_DIR-profiling" build_profiling
rm -rf "$TARGET_DIR"
