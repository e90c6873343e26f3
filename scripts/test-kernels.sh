#!/usr/bin/env bash
# test-kernels.sh [KERNEL]...: the ground-truth test on Debian's kernels, in an emulated machine, and on this machine's own;
# on each with the capabilities that the chart grants, and with SYS_ADMIN as well where that adds a tier. A KERNEL is one of
# the versions below, or own; the default is all of them. Needs root, and scripts/setup.sh build before.
#
# Ends with a table and a line `N passed, N failed`. What each kernel printed is in target/kernels.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
need_root test-kernels.sh
cd "$ROOT"

# Version, where Debian has it, and how the name of the package with the kernel begins there. The newest one of the version
# is taken.
KERNELS=(
  '6.1  bookworm           linux-image'
  '6.12 bookworm-backports linux-image'
  '7.2  trixie-backports   linux-binary'
)

# From which version on which tiers work: with the chart's capabilities, and with agent.sysAdmin=true. No other may.
TIERS=(
  '6.1  none                 perf-event'
  '6.10 uprobe-multi         uprobe-multi,perf-event'
  '6.13 session,uprobe-multi session,uprobe-multi,perf-event'
)

# Seconds for all runs on one kernel. On two cores that do nothing else they take 100; on busy ones it was 600.
LIMIT=1800

OUT=target/kernels
# The root of the emulated machine's file system. What is tested is in /test.
MACHINE=$OUT/machine

passed=0
failed=0
table=$'KERNEL\tCAPABILITIES\tTESTS PASSED BY TIER\tPASSED\tFAILED\tSECONDS'

main() {
  local kernel version suite package packages chosen=("$@")
  ((${#chosen[@]})) || chosen=("${KERNELS[@]%% *}" own)
  mapfile -t packages < <(missing_packages qemu-system-x86=qemu-system-x86_64 busybox-static=busybox cpio=cpio \
    util-linux=setpriv gcc=gcc libc6-dev=/usr/include/stdlib.h librocksdb-dev=/usr/include/rocksdb/c.h)
  install_packages "${packages[@]}"
  mkdir -p "$OUT" "$CACHE/kernels" "$CACHE/log"
  for kernel in "${KERNELS[@]}"; do
    read -r version suite package <<< "$kernel"
    [[ " ${chosen[*]} " != *" $version "* ]] ||
      provide "Linux $version, by downloading it" has_kernel "$CACHE/kernels/$version" fetch_kernel "$suite" "$package-$version."
  done
  make_machine
  for kernel in "${chosen[@]}"; do test_on "$kernel"; done
  printf '\n%s\n' "$table" | column -t -s $'\t'
  printf '\n%d passed, %d failed\n' "$passed" "$failed"
  ((failed == 0))
}

# shellcheck disable=SC2154  # of main
has_kernel() { [[ -s $CACHE/kernels/$version/vmlinuz ]]; }

# fetch_kernel TMP SUITE BEGINNING: unpacks the kernel out of the newest package whose name begins like that. From the
# mirror that this machine's apt uses, with package lists of its own: nothing is installed, and apt's own lists stay.
fetch_kernel() {
  local tmp=$1 suite=$2 beginning=$3 mirror log newest
  log=$CACHE/log/linux-$suite.log
  mirror=$(debian_mirror)
  [[ -n $mirror ]] || { as_root apt-get -qq update && mirror=$(debian_mirror); }
  [[ -n $mirror ]] || die "apt is not set up to use a Debian mirror: it has no source with Origin and Label Debian"
  mkdir -p "$tmp/apt"/{lists,archives}/partial
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$tmp/apt/sources.list"
  local options=(-qq -o "Dir::Etc::SourceList=$tmp/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$tmp/apt/lists" -o "Dir::Cache=$tmp/apt" -o APT::Sandbox::User=root)
  run_logged "$log" apt-get "${options[@]}" update
  newest=$(apt-cache "${options[@]}" pkgnames "$beginning" | { grep -- '-cloud-amd64$' || true; } | sort --version-sort |
    tail -n 1)
  [[ -n $newest ]] || die "Debian's $suite has no $beginning*-cloud-amd64 any more: adapt the list in scripts/test-kernels.sh"
  step "unpacking $newest"
  (cd "$tmp/apt" && run_logged "$log" apt-get "${options[@]}" download "$newest")
  dpkg --extract "$tmp/apt/$newest"_*.deb "$tmp/apt/package"
  find "$tmp/apt/package" -name 'vmlinuz*' -type f -exec mv {} "$tmp/vmlinuz" \;
  [[ -s $tmp/vmlinuz ]] || die "there is no kernel in Debian's package $newest"
  rm -r "$tmp/apt"
}

# shellcheck disable=SC2016  # apt's variables, not the shell's
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p
}

# make_machine: compiles what is tested, and puts it with all that it needs into MACHINE and MACHINE.cpio.gz.
make_machine() {
  local test file
  step "building the ground-truth test"
  run_logged "$OUT/build.log" cargo build --locked --package ckb-probe-agent --bin ckb-probe
  run_logged "$OUT/build.log" cargo test --locked --no-run --package ckb-probe-tests --test ground_truth \
    --message-format=json-render-diagnostics
  test=$(sed -n 's|.*"executable":"\([^"]*/ground_truth-[^"]*\)".*|\1|p' "$OUT/build.log")
  tests/fixtures/build.sh target/fixtures

  rm -rf "$MACHINE"
  mkdir -p "$MACHINE"/{bin,dev,proc,sys,tmp,usr/bin,test/fixtures}
  cp tests/kernels/init.sh "$MACHINE/init"
  cp tests/kernels/run.sh "$MACHINE/test"
  cp target/fixtures/ground-truth* "$MACHINE/test/fixtures"
  strip --strip-debug -o "$MACHINE/test/ground_truth" "$test"
  strip --strip-debug -o "$MACHINE/test/ckb-probe" target/debug/ckb-probe
  cp "$(command -v busybox)" "$MACHINE/bin/busybox"
  ln -s busybox "$MACHINE/bin/sh"
  cp /usr/bin/setpriv "$MACHINE/usr/bin"
  for file in "$MACHINE"/{bin,usr/bin,test}/*; do libraries "$file"; done | sort -u | while read -r file; do
    install -D "$file" "$MACHINE$file"
  done
  (cd "$MACHINE" && find . | cpio --create --format newc --owner 0:0 --quiet) | gzip -1 > "$MACHINE.cpio.gz"
}

# libraries FILE: the paths of the shared libraries that a program needs, and of its loader; nothing for anything else.
libraries() { ldd "$1" 2> /dev/null | grep --only-matching '/[^ ]*' || true; }

# test_on KERNEL: makes its runs and adds them to the table.
test_on() {
  local kernel=$1 log=$OUT/$1.log runs version=$1
  if [[ $kernel == own ]]; then
    step "this machine's kernel"
    mapfile -t runs < <(runs_of "$(uname -r)")
    on_this_machine "${runs[@]}" > "$log" 2>&1
  else
    step "Linux $kernel"
    mapfile -t runs < <(runs_of "$kernel")
    emulated "$kernel" "${runs[@]}" < /dev/null 2>&1 | tr -d '\r' > "$log"
  fi
  for ((run = 0; run < ${#runs[@]}; run += 3)); do judge "$kernel" "$log" "${runs[run]}" "${runs[run + 2]}"; done
}

# runs_of VERSION: what to run on that kernel, three lines each: a name, the capabilities, and the tiers that must work.
runs_of() {
  local row from chart sys_admin granted
  for row in "${TIERS[@]}"; do
    printf '%s\n%s\n' "${row%% *}" "$1" | sort --version-sort --check=silent || break
    read -r from chart sys_admin <<< "$row"
  done
  [[ -n ${from:-} ]] || die "nothing is known of Linux $1: adapt the list in scripts/test-kernels.sh"
  granted=$(sed -n 's/^  capabilities: \[\(.*\)\]$/+\L\1/p' charts/ckb-probe/values.yaml)
  granted=${granted//, /,+}
  [[ $chart == none ]] || printf '%s\n' chart "$granted" "$chart"
  printf '%s\n' sys-admin "$granted,+sys_admin" "$sys_admin"
}

on_this_machine() {
  while (($#)); do
    timeout "$LIMIT" "$MACHINE/test/run.sh" "$1" "$2" "$3" || true
    shift 3
  done
}

# emulated KERNEL [NAME CAPABILITIES TIERS]...
# - Without cx16: qemu 7.2 gets the flags wrong after some cmpxchg16b, and the kernel dies of a double fault.
# - preempt=full: where a thread can be preempted inside of a probe, two of them can be in one at a time on one CPU. Debian's
#   kernels allow that (7.2) or not (6.1, 6.12) by default, and others' do.
emulated() {
  local kernel=$1
  shift
  timeout --foreground "$LIMIT" qemu-system-x86_64 -accel tcg -cpu qemu64,-cx16 -smp 2 -m 1024 -nodefaults -display none \
    -serial stdio -no-reboot -kernel "$CACHE/kernels/$kernel/vmlinuz" -initrd "$MACHINE.cpio.gz" \
    -append "console=ttyS0 loglevel=4 oops=panic panic=-1 preempt=full -- $*" || echo "qemu ended with $?"
}

# judge KERNEL LOG NAME TIERS: reads a run's result out of the log. What is not there to be read is a failure.
judge() {
  local kernel=$1 log=$2 name=$3 tiers=$4 run release begin code end good bad tier times by=''
  run=$(sed -n "/^=== $name begins /,/^=== $name ends /p" "$log")
  read -r release begin < <(sed -n "s/^=== $name begins on \(.*\) at \(.*\)/\1 \2/p" <<< "$run") || true
  read -r code end < <(sed -n "s/^=== $name ends with \(.*\) at \(.*\)/\1 \2/p" <<< "$run") || true
  read -r good bad < <(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*/\1 \2/p' <<< "$run") || true
  : "${good:=0}" "${bad:=0}"
  if [[ $code != 0 || $good == 0 ]] || ! grep --quiet "^attach tier *${tiers%%,*}$" <<< "$run"; then
    # It broke off, or the agent would not choose the best of these tiers.
    ((bad > 0)) || bad=1
  fi
  for tier in ${tiers//,/ }; do
    times=$(grep --count --line-regexp "passed by $tier" <<< "$run" || true)
    by+="${by:+, }$tier $times"
    ((bad > 0 || times == good)) || bad=1
  done
  passed=$((passed + good))
  failed=$((failed + bad))
  table+=$'\n'"$kernel ${release:+($release)}"$'\t'"$name"$'\t'"$by"$'\t'"$good"$'\t'"$bad"$'\t'"${end:+$((end - begin))}"
  ((bad == 0)) || {
    printf '\nfailed: %s, with the capabilities "%s" (all of it: %s)\n' "$kernel" "$name" "$log"
    # What the test says of its failures, or the end of what there is.
    sed -n '/^failures:$/,$p' <<< "$run" | grep . || tail -n 40 "$log"
  }
}

main "$@"
