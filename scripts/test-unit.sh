#!/usr/bin/env bash
# test-unit.sh [OPTIONS]: unit, property and kernel tests of all crates; OPTIONS are those of `cargo test --no-run`, such as --test tcp.
# Ends with one line: N passed, N failed. WHICH=kernel has only those that watch a kernel, and WHICH=pure all others.
#
# Test programs run in three lanes. Those that watch a kernel wait for most of the time: two of them run at a time, the longest first. All
# others run beside them one after the other, and give way; that lane then takes of the first, too. By themselves, those that watch a kernel have
# four. What a program leaves behind goes with it, and so does one that never ends.
#
# Kernel tests watch what a real kernel does on a machine that others use too. So up to eight tests that fail are run once more, each by
# itself, and have failed when they fail again. What needed that is said (AGAIN), and more than eight are no accident: neighbours of a
# machine were seen to disturb three at once.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

AT_MOST=8

# Test programs that ask nothing of the kernel that another process could disturb.
PURE='ckb_probe_(core|crds|figures|k8s|operator|otlp|profiles|report|screen|symbols|testkit|tests|traces|views) [(]lib[)]'
PURE+='|(architecture|chart|collector|deadlines|descriptors|documentation|flames|from_cluster|fuzz_seeds|go|languages|monitoring|receiver|release|specification|stability) [(]test[)]'
# What takes longest is begun first, so that no lane is left with it in the end: of those that watch a kernel.
LONGEST=('ground_truth (test)' 'engine (test)' 'kinds (test)' 'ckb_probe_bpf (lib)' 'stacks (test)' 'allocations (test)')
# No program takes half as long, however busy the machine is.
LIMIT=20m

work=$(mktemp -d)
trap 'end_groups; rm -rf "$work"' EXIT

# end_groups: ends what runs still, where the script itself is ended.
end_groups() {
  local group
  for group in "$work"/group.*; do
    [[ ! -s $group ]] || kill -KILL -- "-$(cat "$group")" 2> /dev/null || true
  done
}

# programs OPTIONS...: builds, and a line "FOLDER<tab>PROGRAM<tab>NAME" for each test program. It runs in the folder of its package, as
# cargo has it. All of the workspace, with its one set of features: a package by itself is another build.
programs() {
  cargo test --locked --workspace --no-run --message-format json-render-diagnostics "$@" | jq --raw-output '
    select(.reason == "compiler-artifact" and .profile.test and .executable)
    | [(.manifest_path | rtrimstr("/Cargo.toml")), .executable, "\(.target.name) (\(.target.kind[0]))"] | @tsv'
}

# take LIST: the first line of LIST that nobody has taken yet, of several lanes.
take() {
  local lock
  exec {lock}> "$1.lock"
  flock "$lock"
  sed -n 1p "$1"
  sed -i 1d "$1"
  exec {lock}>&-
}

# run LANE FOLDER PROGRAM [OPTIONS...]: runs a test program, and shows what it says once it has ended, which is in $work/log.LANE. That is
# not waited for: whatever it leaves behind may hold its output for ever, and is ended.
run() {
  local lane=$1 folder=$2 program=$3 status=0
  shift 3
  # A group of its own, named by the number of what sees to the limit. The colours of a terminal would stand between the words that are
  # looked for.
  (cd "$folder" && CARGO_MANIFEST_DIR=$folder exec timeout --kill-after=10 "$LIMIT" "$program" --color never "$@") \
    > "$work/log.$lane" 2>&1 < /dev/null &
  echo "$!" > "$work/group.$lane"
  wait "$!" || status=$?
  kill -KILL -- "-$!" 2> /dev/null || true
  : > "$work/group.$lane"
  ((status != 124)) || echo "error: $program did not end within $LIMIT" >> "$work/log.$lane"
  cat "$work/log.$lane"
  return "$status"
}

# lane NAME LIST: runs the programs that it takes from LIST. What failed is in $work/failed.NAME, a line
# "FOLDER<tab>PROGRAM<tab>NAME<tab>TEST" each, and how many passed in $work/passed.NAME.
lane() {
  local line folder program name log=$work/log.$1 passed=0 before status begin
  : > "$work/failed.$1"
  while line=$(take "$2") && [[ -n $line ]]; do
    IFS=$'\t' read -r folder program name <<< "$line"
    printf '     Running %s\n' "$name"
    before=$(wc -l < "$work/failed.$1") status=0 begin=$SECONDS
    run "$1" "$folder" "$program" || status=$?
    printf '%6d s  %s\n' $((SECONDS - begin)) "$name" >> "$work/times.$1"
    passed=$((passed + $(result passed "$log")))
    sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$log" | sed 's/ - should panic$//' |
      awk -v of="$folder"$'\t'"$program"$'\t'"$name" '{ print of "\t" $0 }' >> "$work/failed.$1"
    # It ended badly, and did not say what failed.
    ((status == 0 || $(wc -l < "$work/failed.$1") > before)) ||
      printf '%s\t%s\t%s\t\n' "$folder" "$program" "$name" >> "$work/failed.$1"
  done
  echo "$passed" > "$work/passed.$1"
}

# examples: the tests that are in documentation, which cargo compiles as it runs them. As of a lane named so.
examples() {
  local log=$work/log.examples
  CARGO_TERM_COLOR=never cargo test --locked --workspace --doc --no-fail-fast 2>&1 | tee "$log" ||
    printf '%s\t%s\t%s\t\n' . cargo examples > "$work/failed.examples"
  result passed "$log" > "$work/passed.examples"
}

# result WORD LOG: the tests of which LOG says this.
result() { sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$2" | awk '{ total += $1 } END { print total + 0 }'; }

programs "$@" > "$work/programs"
[[ -s $work/programs ]] || die "cargo built no test program"
which=${WHICH:-all}
[[ $which == @(all|kernel|pure) ]] || die "WHICH is kernel or pure, not $which"
awk -F '\t' -v pure="^($PURE)$" -v to="$work" '{ print > (to ($3 ~ pure ? "/pure" : "/rest")) }' "$work/programs"
touch "$work"/{pure,rest}
[[ $which != kernel ]] || : > "$work/pure"
[[ $which != pure ]] || : > "$work/rest"
for name in "${LONGEST[@]}"; do grep --fixed-strings $'\t'"$name" "$work/rest" || true; done > "$work/longest"
{
  cat "$work/longest"
  grep --fixed-strings --line-regexp --invert-match --file "$work/longest" "$work/rest" || true
} > "$work/kernel"
(
  [[ $which == kernel ]] || renice --priority 5 "$BASHPID" > /dev/null
  lane pure "$work/pure"
  (($# > 0)) || [[ $which == kernel ]] || examples
  [[ $which == pure ]] || renice --priority 0 "$BASHPID" > /dev/null
  lane third "$work/kernel"
) > "$work/told.pure" 2>&1 &
lane second "$work/kernel" > "$work/told.second" 2>&1 &
[[ $which != kernel ]] || lane fourth "$work/kernel" > "$work/told.fourth" 2>&1 &
lane first "$work/kernel"
wait
cat "$work"/told.*

passed=$(cat "$work"/passed.* | awk '{ total += $1 } END { print total + 0 }')
mapfile -t again < <(cat "$work"/failed.*)
failed=${#again[@]}
if ((failed > 0 && failed <= AT_MOST)); then
  for line in "${again[@]}"; do
    IFS=$'\t' read -r folder program name test <<< "$line"
    [[ -n $test ]] || continue
    step "once more, by itself: $test"
    if run again "$folder" "$program" --exact "$test" && (($(result passed "$work/log.again") > 0)); then
      printf 'AGAIN  %s (%s): failed among the others, passed by itself\n' "$test" "$name"
      passed=$((passed + 1)) failed=$((failed - 1))
    fi
  done
fi
printf '\nWhat took longest:\n'
sort --reverse --numeric-sort "$work"/times.* | sed -n 1,12p
printf '\n%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
