# shellcheck shell=bash
# What the scripts share. Sourced, never run.

# Where built tools are kept between clones and runs.
CACHE=${CKB_PROBE_CACHE:-${HOME:?}/.cache/ckb-probe}

# The pinned versions of the tools that are built here.
# shellcheck disable=SC2034  # read by the scripts that source this file
{
  KUBERNETES=1.34.4
  HELM=3.21.4
  BPF_LINKER=0.13.0
  CKB=0.210.0
  CARGO_DENY=0.20.2
}

# step TEXT: a progress line, with the time of day and the seconds since the script began.
step() { printf '%(%H:%M:%S)T %4d s  %s\n' -1 "$SECONDS" "$*"; }

# die TEXT: says what went wrong and what to do about it, and ends the script.
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

need_root() { [[ $EUID -eq 0 ]] || die "$1 needs root"; }

# run_logged LOG COMMAND...: runs a long command with its output in LOG; shows the end of LOG when it fails.
run_logged() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  "$@" > "$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "failed: $* (all of its output: $log)"
  }
}

# install_into DIR BUILDER ARGS...: runs `BUILDER TMP ARGS...`, which fills TMP, and only then moves TMP to DIR. An
# interrupted build is thus never taken for a finished one. A second caller waits for the first.
install_into() {
  local dir=$1 builder=$2 tmp lock
  shift 2
  mkdir -p "$CACHE"
  exec {lock}> "$CACHE/.lock"
  flock --nonblock "$lock" || {
    step "waiting for another set-up to finish"
    flock "$lock"
  }
  tmp=$(mktemp -d "$CACHE/.partial.XXXXXX")
  # A subshell: the builder cannot leave the caller in another folder, and TMP goes whatever happens.
  (
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 130' INT TERM
    "$builder" "$tmp" "$@"
    rm -rf "$dir"
    mv -T "$tmp" "$dir"
  ) {lock}>&-
  exec {lock}>&-
}
