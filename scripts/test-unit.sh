#!/usr/bin/env bash
# test-unit.sh [OPTIONS]: unit, property and kernel tests of all crates; OPTIONS are those of `cargo test --no-run`, such as --test tcp.
# Ends with one line: N passed, N failed.
#
# Test programs run in three lanes. Those that watch a kernel wait for most of the time: they run one after the other, but for the longest
# of them, which is a lane of its own. All others run beside them, and give way.
#
# Kernel tests watch what a real kernel does on a machine that others use too. So up to three tests that fail are run once more, each by
# itself, and have failed when they fail again. What needed that is said (AGAIN), and more than three are no accident.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

AT_MOST=3

# Test programs that ask nothing of the kernel that another process could disturb.
PURE='ckb_probe_(core|crds|figures|k8s|operator|otlp|profiles|symbols|testkit|tests|traces) [(]lib[)]'
PURE+='|(architecture|chart|collector|deadlines|descriptors|flames|from_cluster|fuzz_seeds|go|receiver|specification|stability) [(]test[)]'
# What takes as long as all others that watch a kernel.
LONGEST='ground_truth [(]test[)]'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# programs OPTIONS...: builds, and a line "FOLDER<tab>PROGRAM<tab>NAME" for each test program. It runs in the folder of its package, as
# cargo has it. All of the workspace, with its one set of features: a package by itself is another build.
programs() {
  cargo test --locked --workspace --no-run --message-format json-render-diagnostics "$@" | jq --raw-output '
    select(.reason == "compiler-artifact" and .profile.test and .executable)
    | [(.manifest_path | rtrimstr("/Cargo.toml")), .executable, "\(.target.name) (\(.target.kind[0]))"] | @tsv'
}

# lane NAME: runs the programs that it reads. What failed is in $work/failed.NAME, a line "FOLDER<tab>PROGRAM<tab>NAME<tab>TEST" each,
# and how many passed in $work/passed.NAME.
lane() {
  local folder program name log=$work/log.$1 passed=0 before status
  : > "$work/failed.$1"
  while IFS=$'\t' read -r folder program name; do
    printf '     Running %s\n' "$name"
    # The colours of a terminal would stand between the words that are looked for.
    before=$(wc -l < "$work/failed.$1") status=0
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" --color never) 2>&1 < /dev/null | tee "$log" || status=$?
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
awk -F '\t' -v pure="^($PURE)$" -v longest="^$LONGEST$" -v to="$work" '
  { print > (to ($3 ~ pure ? "/pure" : $3 ~ longest ? "/longest" : "/kernel")) }' "$work/programs"
touch "$work"/{pure,longest,kernel}
(
  renice --priority 5 "$BASHPID" > /dev/null
  lane pure < "$work/pure"
  (($# > 0)) || examples
) > "$work/told.pure" 2>&1 &
lane longest < "$work/longest" > "$work/told.longest" 2>&1 &
lane kernel < "$work/kernel"
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
    if (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" --color never --exact "$test") 2>&1 | tee "$work/log" &&
      (($(result passed "$work/log") > 0)); then
      printf 'AGAIN  %s (%s): failed among the others, passed by itself\n' "$test" "$name"
      passed=$((passed + 1)) failed=$((failed - 1))
    fi
  done
fi
printf '\n%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
