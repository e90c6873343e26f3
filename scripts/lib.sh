# shellcheck shell=bash
# What the scripts share. Sourced, never run.

# Where built tools are kept between clones and runs.
CACHE=${CKB_PROBE_CACHE:-${HOME:?}/.cache/ckb-probe}

# The pinned versions of the tools that are built here.
# shellcheck disable=SC2034  # read by the scripts that source this file
{
  # The local cluster's; the oldest that is enough is played on by test-kubernetes.sh.
  KUBERNETES=${CKB_PROBE_KUBERNETES:-1.34.4}
  OLDEST_KUBERNETES=1.30.14
  HELM=3.21.4
  KUBE_ROUTER=2.1.0
  BPF_LINKER=0.13.0
  CKB=0.210.0
  ACTIONLINT=1.7.12
  CARGO_AUDITABLE=0.7.7
  CARGO_DENY=0.20.2
  CARGO_FUZZ=0.13.2
  SPEEDSCOPE=1.25.0
  OTELCOL=0.165.0
  JAEGER=1.76.0
  GRAFANA_SCHEMA=0.0.22
  KREW=0.4.3
  MDBOOK=0.5.4
}

# step TEXT: a progress line, with the time of day and the seconds since the script began.
step() { printf '%(%H:%M:%S)T %4d s  %s\n' -1 "$SECONDS" "$*"; }

# die TEXT: says what went wrong and what to do about it, and ends the script.
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

need_root() { [[ $EUID -eq 0 ]] || die "$1 needs root"; }

# alone [ARGUMENT...]: waits until no other test or benchmark of this machine has the cluster, or measures; the script is begun again with
# these arguments meanwhile. --close: the cluster's processes may outlive the script, and must not hold the lock.
alone() {
  [[ -z ${CKB_PROBE_ALONE:-} ]] || return 0
  mkdir -p "$CACHE"
  flock --nonblock "$CACHE/e2e.lock" true || step "waiting for other tests on this machine"
  # shellcheck disable=SC2154  # each script says where it is
  CKB_PROBE_ALONE=1 exec flock --close "$CACHE/e2e.lock" "$here/$(basename "$0")" "$@"
}

# kubernetes_tools: has kubectl and its like in the PATH. The local cluster is in the folder $run.
kubernetes_tools() {
  PATH=$CACHE/kubernetes-$KUBERNETES/bin:$CACHE/helm-$HELM/bin:$PATH
  run=${CKB_PROBE_RUN:-target/cluster}
}

# cluster_tools: the same, and KUBECONFIG, the local cluster's whatever the caller's is.
cluster_tools() {
  kubernetes_tools
  PATH=$PATH:/usr/sbin:/sbin
  run=$(realpath --canonicalize-missing "$run")
  export KUBECONFIG=$run/admin.kubeconfig
}

# build_harness BIN...: builds programs that play tests, into the folder $harness. With the features of the whole workspace: unit tests are
# built with these. Where what they test is built for tests alone (CKB_PROBE_PROFILE=ci) so are they: most of their dependencies are the same.
build_harness() {
  local profile=dev bin bins=()
  # shellcheck disable=SC2034  # it is the caller's
  harness=target/debug
  # shellcheck disable=SC2034
  [[ ${CKB_PROBE_PROFILE:-} != ci ]] || profile=ci harness=target/ci
  for bin; do bins+=(--bin "$bin"); done
  cargo build --locked --quiet --workspace --profile "$profile" "${bins[@]}"
}

# need_room GIGABYTES WHAT: ends the script where the file system of this folder has less room than WHAT needs: what runs out of it
# fails somewhere, and looks like anything else.
need_room() {
  local free
  free=$(df --output=avail --block-size=1G . | tail -n 1)
  ((free >= $1)) || die "$2 needs $1 GB, and $PWD has ${free// /} GB left: free some there"
}

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

# provide WHAT CHECK DIR BUILDER ARGS...: unless CHECK succeeds, runs `BUILDER TMP ARGS...`, which fills TMP, and only
# then moves TMP to DIR. An interrupted build is thus never taken for a finished one. A second caller waits for the first.
provide() {
  local what=$1 check=$2 dir=$3 builder=$4 lock
  shift 4
  ! "$check" || return 0
  mkdir -p "$CACHE"
  exec {lock}> "$dir.lock"
  flock --nonblock "$lock" || {
    step "waiting for another set-up that builds $what"
    flock "$lock"
  }
  "$check" || (
    exec {lock}>&-
    step "building $what"
    rm -rf "$dir.partial"
    mkdir "$dir.partial"
    "$builder" "$dir.partial" "$@"
    rm -rf "$dir"
    mv -T "$dir.partial" "$dir"
    step "ready: $dir"
  )
  exec {lock}>&-
}

as_root() { if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi; }

# missing_packages PACKAGE=PROOF...: the packages whose PROOF, a command or a pattern of paths, is not on this machine.
# What is there counts wherever it comes from.
missing_packages() {
  local need proof
  for need in "$@"; do
    proof=${need#*=}
    PATH=$PATH:/usr/sbin:/sbin command -v "$proof" > /dev/null || compgen -G "$proof" > /dev/null || echo "${need%%=*}"
  done
}

# install_packages PACKAGE...: installs Debian packages, without leaving a service of theirs running or enabled.
install_packages() {
  (($#)) || return 0
  command -v apt-get > /dev/null || die "this machine has no apt-get: install what these Debian packages hold: $*"
  step "installing from Debian: $*"
  local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  local log=$CACHE/log/apt.log policy=/usr/sbin/policy-rc.d attempt
  mkdir -p "$CACHE/log"
  # The lock on the package lists has no time-out of its own. Without fresh lists the installation may still succeed.
  for attempt in {1..30}; do
    if "${apt[@]}" update > "$log" 2>&1 || ! grep --quiet lists/lock "$log"; then break; fi
    [[ $attempt != 1 ]] || step "waiting for another apt-get"
    sleep 10
  done
  (
    if [[ ! -e $policy ]]; then
      trap 'as_root rm -f "$policy"' EXIT
      printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin "$policy"
    fi
    run_logged "$log" "${apt[@]}" install --yes --no-install-recommends "$@"
  )
  local package unit
  [[ -d /run/systemd/system ]] || return 0
  for package in "$@"; do
    for unit in $(dpkg -L "$package" | sed -n 's|^/lib/systemd/system/\([^@]*\.service\)$|\1|p'); do
      as_root systemctl --quiet disable "$unit"
    done
  done
}

# sys_admin_needed: whether agents need SYS_ADMIN on this cluster, as the chart's agent.sysAdmin wants it. They do where a
# node's kernel has no uprobe_multi (before 6.6), or perhaps one that sees a single thread of a process (before 6.10).
sys_admin_needed() {
  local kernels oldest
  kernels=$(kubectl get nodes -o jsonpath='{range .items[*]}{.status.nodeInfo.kernelVersion}{"\n"}{end}')
  oldest=$(printf '6.10\n%s\n' "$kernels" | sort --version-sort | head -n 1)
  if [[ $oldest == 6.10 ]]; then echo false; else echo true; fi
}

# cargo_install TMP LOG CRATE VERSION OPTIONS...: builds a program from the crate registry into TMP/bin.
cargo_install() {
  local tmp=$1 log=$2 crate=$3 version=$4
  shift 4
  run_logged "$log" cargo install "$crate" --version "$version" --locked --root "$tmp" "$@"
}

# is_at_least VERSION OTHER: whether the first is no earlier than the second.
is_at_least() { [[ $(printf '%s\n' "$@" | sort --version-sort | head -n 1) == "$2" ]]; }

# install_chart IMAGE BUILD [OPTIONS...]: installs or upgrades the Helm chart in the cluster of KUBECONFIG. BUILD tells images
# of one name apart: another one restarts the operator, and with it the agents. OPTIONS are helm's.
install_chart() {
  local image=$1 build=$2 sys_admin
  shift 2
  sys_admin=$(sys_admin_needed)
  run_logged target/helm.log helm upgrade --install ckb-probe charts/ckb-probe --namespace ckb-probe-system \
    --create-namespace --set-string image.repository="${image%:*}" --set-string image.tag="${image##*:}" \
    --set agent.sysAdmin="$sys_admin" --set-string "agent.podAnnotations.build=$build" "$@" --wait --timeout 3m
}

# binding_packages: what lacks of what compiles RocksDB with its binding for Rust.
binding_packages() {
  missing_packages gcc=gcc g++=g++ make=make clang=clang pkg-config=pkg-config libclang-dev=/usr/lib/llvm-*/lib/libclang.so
}

# arm64_sysroot: where Rust's std for arm64 is, or is to be: that of the release of this machine's rustc-web.
arm64_sysroot() {
  local version
  version=$(dpkg-query --show --showformat '${Version}' rustc-web 2> /dev/null) ||
    die "Debian's rustc-web is not installed, which alone is of one release with a std for arm64: run scripts/setup.sh arm64"
  echo "$CACHE/rust-arm64-$version"
}

# compile_for_arm64: has Cargo and C compilers compile for that. With Debian's Rust: that std is of its release, and of no other.
compile_for_arm64() {
  local sysroot
  sysroot=$(arm64_sysroot)
  [[ -d $sysroot ]] || die "there is no std of Rust for arm64 in $sysroot: run scripts/setup.sh arm64"
  export RUSTC=/usr/bin/rustc
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="--sysroot=$sysroot"
  export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar
}

# digest FILE: enough of its SHA-256 to tell two files apart.
digest() { sha256sum "$1" | cut -c 1-16; }
