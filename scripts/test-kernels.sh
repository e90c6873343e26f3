#!/usr/bin/env bash
# test-kernels.sh [KERNEL]...: each kind's ground truth on Debian's kernels, in an emulated machine, and on this machine's own;
# on each with the capabilities that the chart grants, and with SYS_ADMIN as well those kinds to which it adds a tier. A KERNEL is
# one of the versions below, or own; the default is all of them. KINDS="tcp processes" is for some of the kinds, and LIMIT=7200 for as
# many seconds for all runs on a kernel, where the machine has other things to do. Needs root, and
# scripts/setup.sh build before; for those of arm64, whose machine is emulated like any other, scripts/setup.sh arm64, too.
#
# Ends with a table and a line `N passed, N failed`. What each kernel printed is in target/kernels.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
need_root test-kernels.sh
cd "$ROOT"

# Version, where Debian has it, its flavour, and how the names begin there of the package with the kernel and, where that is
# another one, of that with its modules. The newest one of the version is taken. Those that end in arm64 are of that architecture. The
# flavour cloud preempts what it can because it is told to (preempt=full), but for arm64, where it cannot be told; rt is built to
# (PREEMPT_RT), and preempts what holds locks and what serves interrupts, too.
KERNELS=(
  '6.1     bookworm           cloud linux-image'
  '6.1-rt  bookworm           rt    linux-image'
  '6.12    bookworm-backports cloud linux-image'
  '6.12-rt bookworm-backports rt    linux-image'
  '7.2     trixie-backports   cloud linux-binary'
  '7.2-rt  trixie-backports   rt    linux-binary linux-modules'
  '6.12-arm64 bookworm-backports cloud linux-image'
)

# From which version on which tiers work, for functions of processes and for those of the kernel: with the chart's
# capabilities, and with agent.sysAdmin=true. No other may, and with none the kinds that need one are refused. All other kinds
# must work everywhere. A kernel that was built without kprobes (Debian's are not; this machine's may be) has none of the latter.
# On arm64 there is nothing that probes of several functions of the kernel at once are made of (fprobe) before 6.14.
TIERS=(
  'amd64 6.1  chart     none                            none'
  'amd64 6.1  sys-admin perf-event                      kprobe-perf-event'
  'amd64 6.10 chart     uprobe-multi                    kprobe-multi'
  'amd64 6.10 sys-admin uprobe-multi,perf-event         kprobe-multi,kprobe-perf-event'
  'amd64 6.13 chart     session,uprobe-multi            kprobe-multi'
  'amd64 6.13 sys-admin session,uprobe-multi,perf-event kprobe-multi,kprobe-perf-event'
  'amd64 6.14 chart     session,uprobe-multi            kprobe-session,kprobe-multi'
  'amd64 6.14 sys-admin session,uprobe-multi,perf-event kprobe-session,kprobe-multi,kprobe-perf-event'
  'arm64 6.10 chart     uprobe-multi                    none'
  'arm64 6.10 sys-admin uprobe-multi,perf-event         kprobe-perf-event'
)

# The kinds that need one; all kinds, by the names of their folders; and those to test.
TIERED=(rocksdb functions usdt chain kernel_functions)
mapfile -t ALL < <(sed -n 's/^ *[A-Z][A-Za-z]* "[A-Za-z]*" \([a-z_]*\) [A-Z].*/\1/p' "$ROOT/crds/src/kinds.rs")
read -ra KINDS <<< "${KINDS:-${ALL[*]}}"

# Seconds for all runs on one kernel, on cores that are busy with other things too.
LIMIT=${LIMIT:-3600}

OUT=target/kernels
# The root of the emulated machine's file system, of either architecture. What is tested is in /test.
MACHINE=$OUT/machine

passed=0
failed=0
table=$'KERNEL\tCAPABILITIES\tKIND\tTESTS PASSED, AND BY WHAT\tPASSED\tFAILED\tSECONDS'

main() {
  local kernel version suite flavour beginnings packages architecture chosen=("$@")
  ((${#chosen[@]})) || chosen=("${KERNELS[@]%% *}" own)
  mapfile -t packages < <(missing_packages qemu-system-x86=qemu-system-x86_64 qemu-system-arm=qemu-system-aarch64 busybox-static=busybox \
    cpio=cpio util-linux=setpriv kmod=depmod xz-utils=xz gcc=gcc libc6-dev=/usr/include/stdlib.h \
    librocksdb-dev=/usr/include/rocksdb/c.h)
  install_packages "${packages[@]}"
  mkdir -p "$OUT" "$CACHE/kernels" "$CACHE/log"
  for kernel in "${KERNELS[@]}"; do
    read -r version suite flavour beginnings <<< "$kernel"
    # shellcheck disable=SC2086  # one or two words
    [[ " ${chosen[*]} " != *" $version "* ]] || provide "Linux $version, by downloading it" has_kernel \
      "$CACHE/kernels/$version" fetch_kernel "$suite" "$flavour" "$version" $beginnings
  done
  for architecture in $(for kernel in "${chosen[@]}"; do architecture_of "$kernel"; done | sort -u); do make_machine "$architecture"; done
  for kernel in "${chosen[@]}"; do test_on "$kernel"; done
  printf '\n%s\n' "$table" | column -t -s $'\t'
  printf '\n%d passed, %d failed\n' "$passed" "$failed"
  ((failed == 0))
}

# shellcheck disable=SC2154  # of main
has_kernel() {
  [[ -s $CACHE/kernels/$version/vmlinuz && ($flavour == cloud || -s $CACHE/kernels/$version/modules.cpio) ]]
}

# architecture_of KERNEL: in Debian's words.
architecture_of() {
  case $1 in
    own) dpkg --print-architecture ;;
    *-arm64) echo arm64 ;;
    *) echo amd64 ;;
  esac
}

# package_lists TMP SUITE ARCHITECTURE: sets `options`, by which apt knows that suite and none of what this machine has: nothing is
# installed, and apt's own lists stay. From the mirror that this machine's apt uses.
package_lists() {
  local tmp=$1 suite=$2 architecture=$3 mirror
  mirror=$(debian_mirror)
  [[ -n $mirror ]] || { as_root apt-get -qq update && mirror=$(debian_mirror); }
  [[ -n $mirror ]] || die "apt is not set up to use a Debian mirror: it has no source with Origin and Label Debian"
  mkdir -p "$tmp/apt"/{lists,archives}/partial
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$tmp/apt/sources.list"
  options=(-qq -o "Dir::Etc::SourceList=$tmp/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$tmp/apt/lists" -o "Dir::Cache=$tmp/apt" -o APT::Sandbox::User=root
    -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture")
  run_logged "$CACHE/log/linux-$suite.log" apt-get "${options[@]}" update
}

# unpack TMP SUITE PACKAGE: into TMP/apt/package.
unpack() {
  (cd "$1/apt" && run_logged "$CACHE/log/linux-$2.log" apt-get "${options[@]}" download "$3")
  dpkg --extract "$1/apt/$3"_*.deb "$1/apt/package"
}

# fetch_kernel TMP SUITE FLAVOUR KERNEL BEGINNING...: unpacks the kernel out of the newest packages of the version whose names
# begin like that.
fetch_kernel() {
  local tmp=$1 suite=$2 flavour=$3 version=${4%%-*} architecture beginning newest options
  architecture=$(architecture_of "$4")
  shift 4
  package_lists "$tmp" "$suite" "$architecture"
  for beginning in "$@"; do
    newest=$(apt-cache "${options[@]}" pkgnames "$beginning-$version." | { grep -- "-$flavour-$architecture$" || true; } |
      sort --version-sort | tail -n 1)
    [[ -n $newest ]] ||
      die "Debian's $suite has no $beginning-$version.*-$flavour-$architecture any more: adapt the list in scripts/test-kernels.sh"
    step "unpacking $newest"
    unpack "$tmp" "$suite" "$newest"
  done
  find "$tmp/apt/package" -name 'vmlinuz*' -type f -exec mv {} "$tmp/vmlinuz" \;
  [[ -s $tmp/vmlinuz ]] || die "there is no kernel in Debian's package $newest"
  [[ $flavour == cloud ]] || disk_modules "$tmp/apt/package" "$tmp/apt/disk" > "$tmp/modules.cpio"
  rm -r "$tmp/apt"
}

# disk_modules PACKAGE TMP: an archive of a folder /modules with what the kernel needs to know the machine's disk, which is built
# into the flavour cloud alone: named so that each comes behind those that it needs.
disk_modules() {
  local package=$1 tmp=$2 release module place=10
  [[ -d $package/lib/modules ]] || ln -s usr/lib "$package/lib"
  release=$(basename "$package"/lib/modules/*)
  PATH=$PATH:/usr/sbin:/sbin run_logged "$CACHE/log/depmod.log" depmod --basedir "$package" "$release"
  mkdir -p "$tmp/modules"
  PATH=$PATH:/usr/sbin:/sbin modprobe --dirname "$package" --set-version "$release" --show-depends nvme |
    sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r module; do
    case $module in
      *.xz) xz --decompress --stdout "$module" > "$tmp/modules/$place-$(basename "$module" .xz)" ;;
      *) cp "$module" "$tmp/modules/$place-$(basename "$module")" ;;
    esac
    place=$((place + 1))
  done
  (cd "$tmp" && find modules | cpio --create --format newc --owner 0:0 --quiet)
}

# shellcheck disable=SC2016  # apt's variables, not the shell's
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p
}

# fetch_tools TMP: of arm64, what the machine has besides what is tested, in TMP/bin; and what of it is not in the cross compiler, in TMP/lib.
fetch_tools() {
  local tmp=$1 package options
  package_lists "$tmp" bookworm arm64
  for package in busybox-static util-linux libcap-ng0; do unpack "$tmp" bookworm "$package"; done
  mkdir "$tmp"/{bin,lib}
  cp "$tmp"/apt/package/{bin/busybox,usr/bin/setpriv} "$tmp/bin"
  find "$tmp/apt/package" -name 'libcap-ng.so.*' -exec cp --no-dereference {} "$tmp/lib" \;
  rm -r "$tmp/apt"
}

TOOLS=$CACHE/kernels/tools-arm64
has_tools() { [[ -x $TOOLS/bin/busybox && -x $TOOLS/bin/setpriv ]]; }

# make_machine ARCHITECTURE: compiles what is tested, and puts it with all that it needs into MACHINE-ARCHITECTURE, and into an archive
# beside it.
make_machine() {
  local root=$MACHINE-$1 log=$OUT/build-$1.log built=target/debug fixtures=target/fixtures cross='' cargo=() test file
  local tools=("$(command -v busybox)" /usr/bin/setpriv)
  step "building the tests for $1"
  [[ $1 == "$(dpkg --print-architecture)" ]] || {
    [[ $1 == arm64 ]] || die "tests are compiled for $1 on such a machine alone"
    provide "what the machine of arm64 has, by downloading it" has_tools "$TOOLS" fetch_tools
    built=target/arm64/aarch64-unknown-linux-gnu/debug fixtures=target/arm64/fixtures cross=aarch64-linux-gnu-
    cargo=(--target aarch64-unknown-linux-gnu --target-dir target/arm64)
    tools=("$TOOLS"/bin/*)
  }
  (
    [[ -z $cross ]] || {
      compile_for_arm64
      # It is stripped of it, and nobody debugs there.
      export CARGO_PROFILE_DEV_DEBUG=0
    }
    run_logged "$log" cargo build --locked "${cargo[@]}" --package ckb-probe-agent --bin ckb-probe
    run_logged "$log" cargo test --locked "${cargo[@]}" --no-run --package ckb-probe-tests --test ground_truth --test kinds \
      --message-format=json-render-diagnostics
    CC=${cross}gcc tests/fixtures/build.sh "$fixtures"
  )

  rm -rf "$root"
  mkdir -p "$root"/{bin,dev,proc,sys,tmp,usr/bin,test/fixtures}
  cp tests/kernels/init.sh "$root/init"
  cp tests/kernels/run.sh "$root/test"
  cp --recursive "$fixtures/." "$root/test/fixtures"
  for test in chart sys-admin; do kinds_of "$test" > "$root/test/$test"; done
  echo bystander > "$root/test/bystander"
  for test in ground_truth kinds; do
    file=$(sed -n "s|.*\"executable\":\"\([^\"]*/$test-[^\"]*\)\".*|\1|p" "$log")
    "${cross}strip" --strip-debug -o "$root/test/$test" "$file"
  done
  "${cross}strip" --strip-debug -o "$root/test/ckb-probe" "$built/ckb-probe"
  cp "${tools[@]}" "$root/usr/bin"
  mv "$root/usr/bin/busybox" "$root/bin"
  ln -s busybox "$root/bin/sh"
  if [[ -n $cross ]]; then
    mkdir "$root/lib"
    cp "$TOOLS"/lib/* /usr/aarch64-linux-gnu/lib/{ld-linux-aarch64,libc,libm,libgcc_s}.so.* "$root/lib"
  else
    for file in "$root"/{bin,usr/bin,test}/*; do libraries "$file"; done | sort -u | while read -r file; do
      install -D "$file" "$root$file"
    done
  fi
  (cd "$root" && find . | cpio --create --format newc --owner 0:0 --quiet) > "$root.cpio"
  truncate --size 16M "$MACHINE.disk"
}

# libraries FILE: the paths of the shared libraries that a program needs, and of its loader; nothing for anything else.
libraries() { ldd "$1" 2> /dev/null | grep --only-matching '/[^ ]*' || true; }

# test_on KERNEL: makes its runs and adds them to the table.
test_on() {
  local kernel=$1 log=$OUT/$1.log runs kinds version=$1 run kind
  if [[ $kernel == own ]]; then
    step "this machine's kernel"
    mapfile -t runs < <(runs_of own "$(uname -r)")
    on_this_machine "${runs[@]}" > "$log" 2>&1
  else
    step "Linux $kernel"
    mapfile -t runs < <(runs_of "$kernel" "${kernel%%-*}")
    emulated "$kernel" "${runs[@]}" < /dev/null 2>&1 | sed --unbuffered 's/\r$//' > "$log"
  fi
  for ((run = 0; run < ${#runs[@]}; run += 4)); do
    mapfile -t kinds < <(kinds_of "${runs[run]}")
    for kind in "${kinds[@]}"; do judge "$kernel" "$log" "$kind" "${runs[run]}" "${runs[run + 2]}" "${runs[run + 3]}"; done
  done
  [[ " ${KINDS[*]} " != *" kernel_functions "* ]] || beside "$kernel" "${runs[@]:1:3}"
}

# beside KERNEL CAPABILITIES TIERS KERNEL_TIERS: what functions of the kernel that are probed cost others, where time passes with instructions.
beside() {
  local log=$OUT/$1-bystander.log
  [[ $1 != own && $1 != *-* && $4 != none ]] || return 0
  step "Linux $1, by what instructions take: minutes"
  emulated "$1" bystander "${@:2}" < /dev/null 2>&1 | sed --unbuffered 's/\r$//' > "$log"
  judge "$1" "$log" bystander bystander "$3" "$4"
}

# kinds_of RUN: the kinds that are tested in it.
kinds_of() {
  local kind
  for kind in "${KINDS[@]}"; do
    [[ " ${ALL[*]} " == *" $kind "* ]] || die "there is no kind $kind: there are ${ALL[*]}"
    [[ $1 != chart && " ${TIERED[*]} " != *" $kind "* ]] || echo "$kind"
  done
}

# runs_of KERNEL VERSION: what to run on that kernel, four lines each: a name, the capabilities, the tiers that must work for functions
# of processes, and those for functions of the kernel.
runs_of() {
  local name granted row architecture from capabilities
  granted=$(sed -n 's/^  capabilities: \[\(.*\)\]$/+\L\1/p' charts/ckb-probe/values.yaml)
  granted=${granted//, /,+}
  for name in chart sys-admin; do
    local known=''
    for row in "${TIERS[@]}"; do
      read -r architecture from capabilities _ <<< "$row"
      [[ $architecture == "$(architecture_of "$1")" && $capabilities == "$name" ]] && printf '%s\n%s\n' "$from" "$2" | sort --version-sort --check=silent && known=$row
    done
    [[ -n $known ]] || die "nothing is known of Linux $2 on $(architecture_of "$1"): adapt the list in scripts/test-kernels.sh"
    local tiers kernel_tiers
    read -r _ _ _ tiers kernel_tiers <<< "$known"
    [[ $1 != own ]] || grep --quiet ' register_[fk]probe$' /proc/kallsyms || kernel_tiers=none
    [[ $name == chart ]] || granted+=,+sys_admin
    printf '%s\n' "$name" "$granted" "$tiers" "$kernel_tiers"
  done
}

on_this_machine() {
  while (($#)); do
    timeout "$LIMIT" "$MACHINE-$(architecture_of own)/test/run.sh" "$1" "$2" "$3" "$4" || true
    shift 4
  done
}

# emulated KERNEL [NAME CAPABILITIES TIERS KERNEL_TIERS]...
# - Without cx16: qemu 7.2 gets the flags wrong after some cmpxchg16b, and the kernel dies of a double fault.
# - slab_debug: without cx16, Linux 6.19 and later find no memory for what programs remember of sockets and of threads
#   (kmalloc_nolock) but in slabs that are checked.
# - An NVMe disk: the one sort that Debian's cloud kernels need no module for. Its requests are real ones, of a queue for each CPU.
# - preempt=full: where a thread can be preempted inside of a probe, two of them can be in one at a time on one CPU. Debian's
#   kernels allow that (7.2) or not (6.1, 6.12) by default, and others' do.
# - thread=single: one thread of this machine's for both emulated CPUs. With one for each, a CPU may still run what another has patched
#   over: it met an int3 in __x64_sys_clock_nanosleep where memory had the call already that was to stand there, and the kernel, for
#   which the patching was over, died (Oops). That was one run of kernel_functions on 6.12 in five; with one thread, none in twelve.
# - tsc=reliable: where this machine is busy, the emulated clocks drift apart, and a kernel that looks for that rewrites code of its own
#   while it runs. Emulation may not survive it (an int3 in sched_clock_cpu).
# - icount: of a bystander it is told what its instructions take, whatever else this machine has to do. On one CPU, since several share that time.
# - pauth-impdef=on: arm64's processors sign return addresses as they like, and what the architecture proposes takes emulation long.
emulated() {
  local kernel=$1 modules=$CACHE/kernels/$1/modules.cpio root initrd machine append cpus=(-smp 2)
  root=$MACHINE-$(architecture_of "$1") initrd=$root.cpio
  shift
  [[ ! -s $modules ]] || {
    initrd=$MACHINE.$kernel.cpio
    cat "$root.cpio" "$modules" > "$initrd"
  }
  [[ $1 != bystander ]] || cpus=(-smp 1 -icount shift=1)
  case $root in
    *-arm64) machine=(qemu-system-aarch64 -machine virt -cpu "max,pauth-impdef=on") append='console=ttyAMA0' ;;
    *) machine=(qemu-system-x86_64 -cpu "qemu64,-cx16") append='console=ttyS0 tsc=reliable slab_debug=F,kmalloc-*' ;;
  esac
  timeout --foreground "$LIMIT" "${machine[@]}" -accel tcg,thread=single "${cpus[@]}" -m 1024 -nodefaults -display none \
    -drive "file=$MACHINE.disk,format=raw,if=none,id=disk" -device nvme,drive=disk,serial=disk \
    -serial stdio -no-reboot -kernel "$CACHE/kernels/$kernel/vmlinuz" -initrd "$initrd" \
    -append "$append loglevel=4 oops=panic panic=-1 preempt=full -- $*" || echo "qemu ended with $?"
}

# judge KERNEL LOG KIND NAME TIERS KERNEL_TIERS: reads a kind's result of a run out of the log. What is not there to be read is
# a failure, and so is any test that did not pass by all that it should have passed by, and nothing else.
judge() {
  local kernel=$1 log=$2 kind=$3 name=$4 tiers=$5 kernel_tiers=$6 run release begin code end good bad ways way times said by=''
  run=$(sed -n "/^=== $name $kind begins /,/^=== $name $kind ends /p" "$log")
  read -r release begin < <(sed -n "s/^=== $name $kind begins on \(.*\) at \(.*\)/\1 \2/p" <<< "$run") || true
  read -r code end < <(sed -n "s/^=== $name $kind ends with \(.*\) at \(.*\)/\1 \2/p" <<< "$run") || true
  read -r good bad < <(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*/\1 \2/p' <<< "$run") || true
  : "${good:=0}" "${bad:=0}"
  # What needs a right that the chart does not grant says that it tests nothing. With more than the chart grants, that is a failure.
  [[ $name != chart ]] || good=$((good - $(grep --count '^left out: ' <<< "$run" || true)))
  # It broke off, or there are no tests of it.
  [[ $code == 0 && $good != 0 ]] || ((bad > 0)) || bad=1
  case $kind in
    rocksdb | functions | usdt | chain) ways=${tiers/none/refusal} ;;
    # The agent takes the best one; that each of them counts is one of the tests.
    kernel_functions | bystander) ways=${kernel_tiers/none/refusal} ways=${ways%%,*} ;;
    *) ways=tracing ;;
  esac
  for way in ${ways//,/ }; do
    times=$(grep --count --line-regexp "passed by $way" <<< "$run" || true)
    by+="${by:+, }$way $times"
    ((bad > 0 || times == good)) || bad=1
  done
  # What the agent says of itself: that it would choose the best of these tiers.
  said="attach tier *${tiers%%,*}"
  [[ $tiers != none ]] || said='ckb-probe: nothing can be measured here: .*'
  [[ $kind != rocksdb ]] || grep --quiet --line-regexp "$said" <<< "$run" || ((bad > 0)) || bad=1
  passed=$((passed + good))
  failed=$((failed + bad))
  table+=$'\n'"$kernel ${release:+($release)}"$'\t'"$name"$'\t'"$kind"$'\t'"$by"$'\t'"$good"$'\t'"$bad"$'\t'"${end:+$((end - begin))}"
  ((bad == 0)) || {
    printf '\nfailed: %s on %s, with the capabilities "%s" (all of it: %s)\n' "$kind" "$kernel" "$name" "$log"
    # What the test says of its failures, or the end of what there is.
    sed -n '/^failures:$/,$p' <<< "$run" | grep . || tail -n 40 "$log"
  }
}

main "$@"
