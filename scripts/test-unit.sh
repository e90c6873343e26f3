#!/usr/bin/env bash
# test-unit.sh [OPTIONS]: unit, property and kernel tests of all crates; OPTIONS are cargo test's. Ends with one line: N passed, N failed.
#
# Kernel tests watch what a real kernel does on a machine that others use too. So up to three tests that fail are run once more, each by
# itself, and have failed when they fail again. What needed that is said (AGAIN), and more than three are no accident.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

AT_MOST=3

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The colours of a terminal would stand between the words that are looked for.
run_all() { CARGO_TERM_COLOR=never cargo test --locked --workspace --no-fail-fast "$@" 2>&1 | tee "$log"; }

# result WORD: the tests of which cargo says this.
result() { sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$log" | awk '{ total += $1 } END { print total + 0 }'; }

# failing: a line "OPTIONS<tab>TEST" for each test that failed. Cargo names tests as they run, and the options of their targets in the
# same order at its end.
failing() {
  awk -F '`' '
    /^ *(Running|Doc-tests) / { target++ }
    /^test .* \.\.\. FAILED$/ {
      sub(/^test /, ""); sub(/( - should panic)? \.\.\. FAILED$/, "")
      test[++tests] = $0; of[tests] = target
    }
    /^    `.*`$/ { options[++listed] = $2 }
    END {
      for (i = 1; i <= tests; i++) {
        at += of[i] != of[i - 1]
        printf "%s\t%s\n", options[at], test[i]
      }
    }' "$log"
}

if run_all "$@"; then
  printf '\n%d passed, 0 failed\n' "$(result passed)"
  exit
fi
passed=$(result passed)
failed=$(result failed)
mapfile -t again < <(failing)
# Fewer names than failures: something ended before it could say what failed.
if ((failed == 0 || failed > AT_MOST || ${#again[@]} != failed)); then
  printf '\n%d passed, %d failed\n' "$passed" $((failed > 0 ? failed : 1))
  exit 1
fi
for line in "${again[@]}"; do
  target=${line%%$'\t'*} test=${line#*$'\t'}
  step "once more, by itself: $test"
  # Of the whole workspace, whose build is there: a package by itself is another build. "-p PACKAGE" thus goes.
  # shellcheck disable=SC2086  # the target is several words
  if CARGO_TERM_COLOR=never cargo test --locked --workspace ${target#-p * } -- --exact "$test" 2>&1 | tee "$log" &&
    (($(result passed) > 0)); then
    printf 'AGAIN  %s (%s): failed among the others, passed by itself\n' "$test" "$target"
    passed=$((passed + 1)) failed=$((failed - 1))
  fi
done
printf '\n%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
