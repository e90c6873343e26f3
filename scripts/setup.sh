#!/usr/bin/env bash
# setup.sh [build|unit|cluster|fuzz|lint|browser|traces|bench|release|krew|book|arm64|all]...: installs what is missing to build, to run the test cluster, to
# fuzz, to lint, to open what is drawn, to look at traces, or to measure. The default is all. Silent when nothing is missing.
#
#   build    a Rust for BPF and bpf-linker           the first time 2 minutes
#   unit     a C++ compiler, PostgreSQL, a Collector the first time 90 seconds
#   cluster  Kubernetes, helm, containerd, etcd, …   the first time 10 minutes
#   fuzz     cargo-fuzz and a C++ compiler           the first time 1 minute
#   lint     shellcheck, actionlint, cargo-deny, Grafana's schema  the first time 5 minutes
#   browser  Chromium and speedscope                 the first time 1 minute
#   traces   Jaeger                                  the first time 4 minutes; not part of all
#   bench    bpftrace, perf, gdb and others          the first time 1 minute; not part of all
#   release  cargo-auditable, buildah, mmdebstrap    the first time 2 minutes; not part of all
#   krew     krew, which installs plugins of kubectl the first time 20 seconds; not part of all
#   book     mdBook                                  the first time 12 minutes beside other builds; not part of all
#   arm64    a linker and Rust's std for arm64       the first time 30 seconds; not part of all
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"

KUBERNETES_DIR=$CACHE/kubernetes-$KUBERNETES
KUBERNETES_PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
HELM_DIR=$CACHE/helm-$HELM
KUBE_ROUTER_DIR=$CACHE/kube-router-$KUBE_ROUTER
BPF_LINKER_DIR=$CACHE/bpf-linker-$BPF_LINKER
ACTIONLINT_DIR=$CACHE/actionlint-$ACTIONLINT
CARGO_AUDITABLE_DIR=$CACHE/cargo-auditable-$CARGO_AUDITABLE
CARGO_FUZZ_DIR=$CACHE/cargo-fuzz-$CARGO_FUZZ
CARGO_DENY_DIR=$CACHE/cargo-deny-$CARGO_DENY
SPEEDSCOPE_DIR=$CACHE/speedscope-$SPEEDSCOPE
OTELCOL_DIR=$CACHE/otelcol-$OTELCOL
GRAFANA_SCHEMA_DIR=$CACHE/grafana-schema-$GRAFANA_SCHEMA
JAEGER_DIR=$CACHE/jaeger-$JAEGER
KREW_DIR=$CACHE/krew-$KREW
MDBOOK_DIR=$CACHE/mdbook-$MDBOOK

main() {
  local group groups=("$@") packages
  [[ ${#groups[@]} -gt 0 && " ${groups[*]} " != *" all "* ]] || groups=(build unit cluster fuzz lint browser)
  for group in "${groups[@]}"; do
    [[ $group == @(build|unit|cluster|fuzz|lint|browser|traces|bench|release|krew|book|arm64) ]] ||
      die "usage: setup.sh [build|unit|cluster|fuzz|lint|browser|traces|bench|release|krew|book|arm64|all]..."
  done
  mapfile -t packages < <(for group in "${groups[@]}"; do "${group}_packages"; done | sort -u)
  install_packages "${packages[@]}"
  for group in "${groups[@]}"; do "${group}_tools"; done
}

build_packages() {
  missing_packages gcc=gcc libc6-dev=/usr/include/stdlib.h pkg-config=pkg-config
  command -v cargo > /dev/null || echo cargo-web
  # Either rustup's nightly builds core for BPF from its source, or Debian has it ready-made.
  nightly_has_source || missing_packages rustc-web=/usr/bin/rustc \
    "rust-web-llvm=/usr/lib/rustlib/$(uname -m)-unknown-linux-gnu/bin/gcc-ld" \
    libstd-rust-web-dev-bpf=/usr/lib/rustlib/bpfel-unknown-none
  bpf_linker_works || missing_packages llvm-22-dev=/usr/lib/llvm-22/bin/llvm-config \
    libpolly-22-dev=/usr/lib/llvm-22/lib/libPolly.a zlib1g-dev=/usr/include/zlib.h libzstd-dev=/usr/include/zstd.h \
    libxml2-dev=/usr/include/libxml2/libxml/parser.h
}

nightly_has_source() {
  local rustc
  command -v rustup > /dev/null && rustc=$(rustup which --toolchain nightly rustc 2> /dev/null) &&
    [[ -e $(dirname "$rustc")/../lib/rustlib/src/rust/library/core ]]
}

bpf_linker_works() { "$BPF_LINKER_DIR/bin/bpf-linker" --version > /dev/null 2>&1; }

build_tools() {
  LLVM_PREFIX=/usr/lib/llvm-22 provide "bpf-linker $BPF_LINKER (1 minute)" bpf_linker_works "$BPF_LINKER_DIR" \
    cargo_install "$CACHE/log/bpf-linker.log" bpf-linker "$BPF_LINKER" --no-default-features --features llvm-22
}

cluster_packages() {
  missing_packages gcc=gcc libc6-dev=/usr/include/stdlib.h etcd-server=etcd containerd=containerd runc=runc \
    containernetworking-plugins=/usr/lib/cni/bridge iptables=iptables ipset=ipset conntrack=conntrack iproute2=ip openssl=openssl \
    jq=jq librocksdb-dev=/usr/include/rocksdb/c.h bpftrace=bpftrace strace=strace bpftool=bpftool prometheus=prometheus python3=python3 \
    postgresql-15=/usr/lib/postgresql/15/bin/pgbench
}

# What `make bench` measures with, and against.
bench_packages() {
  missing_packages gcc=gcc libc6-dev=/usr/include/stdlib.h binutils=objdump librocksdb-dev=/usr/include/rocksdb/c.h \
    bpftrace=bpftrace bpftool=bpftool openssl=openssl linux-perf=perf gdb=gdb
}

bench_tools() { :; }

cluster_tools() {
  provide "Kubernetes $KUBERNETES (9 minutes on two cores)" has_kubernetes "$KUBERNETES_DIR" build_kubernetes
  provide "helm $HELM (2 minutes)" has_helm "$HELM_DIR" build_helm
  provide "kube-router $KUBE_ROUTER (2 minutes)" has_kube_router "$KUBE_ROUTER_DIR" build_kube_router
}

has_kubernetes() { has_programs "$KUBERNETES_DIR" "${KUBERNETES_PROGRAMS[@]}"; }
has_helm() { has_programs "$HELM_DIR" helm; }
has_kube_router() { has_programs "$KUBE_ROUTER_DIR" kube-router; }

# has_programs DIR PROGRAM...: whether DIR/bin holds them all.
has_programs() {
  local dir=$1 program
  shift
  for program in "$@"; do [[ -x $dir/bin/$program ]] || return 1; done
}

build_kubernetes() {
  local minor=${KUBERNETES#*.} version=k8s.io/component-base/version folder=cluster/kubernetes
  [[ $KUBERNETES != "$OLDEST_KUBERNETES" ]] || folder=cluster/kubernetes-oldest
  go_build "$1" "$folder" k8s.io/kubernetes "$KUBERNETES" \
    "-X $version.gitVersion=v$KUBERNETES -X $version.gitMajor=${KUBERNETES%%.*} -X $version.gitMinor=${minor%%.*}" \
    "${KUBERNETES_PROGRAMS[@]/#/k8s.io/kubernetes/cmd/}"
}

build_helm() {
  go_build "$1" cluster/helm helm.sh/helm/v3 "$HELM" \
    "-X helm.sh/helm/v3/internal/version.version=v$HELM" helm.sh/helm/v3/cmd/helm
}

# What makes the local cluster follow NetworkPolicies, while a test asks for that.
build_kube_router() {
  local module=github.com/cloudnativelabs/kube-router/v2
  go_build "$1" cluster/kube-router "$module" "$KUBE_ROUTER" "-X $module/pkg/version.Version=v$KUBE_ROUTER" "$module/cmd/kube-router"
}

# go_build TMP FOLDER MODULE VERSION LDFLAGS PACKAGE...: builds what tests/FOLDER/go.mod pins into TMP/bin.
go_build() {
  local tmp=$1 name=${2##*/} folder=$2 module=$3 version=$4 ldflags=$5 pinned
  shift 5
  command -v go > /dev/null || die "Go 1.21 or newer is needed to build $name (it fetches the newer Go that it needs)"
  cd "$ROOT/tests/$folder"
  export GOFLAGS=-mod=readonly
  pinned=$(go list -m -f '{{.Version}}' "$module")
  [[ $pinned == "v$version" ]] || die "scripts/lib.sh says $name $version, but $PWD/go.mod says $pinned"
  mkdir "$tmp/bin"
  run_logged "$CACHE/log/$name.log" go build -trimpath -ldflags "-s -w $ldflags" -o "$tmp/bin/" "$@"
}

# Unit tests search programs of C++ too, and look at a terminal; jq reads what cargo built. One makes a release, signed, of programs that do nothing.
# jeprof, which comes with jemalloc's sources, is Perl.
unit_packages() {
  missing_packages gcc=gcc g++=g++ libc6-dev=/usr/include/stdlib.h jq=jq prometheus=prometheus postgresql-15=/usr/lib/postgresql/15/bin/pgbench \
    binutils=objcopy openssh-client=ssh-keygen python3=python3 tmux=tmux zsh=zsh fish=fish perl=perl librocksdb-dev=/usr/include/rocksdb/c.h
}

unit_tools() { provide "the OpenTelemetry Collector $OTELCOL (90 s on two cores)" has_otelcol "$OTELCOL_DIR" build_otelcol; }

has_otelcol() { has_programs "$OTELCOL_DIR" collector; }

build_otelcol() { go_build "$1" otel/collector go.opentelemetry.io/collector/otelcol "$OTELCOL" "" .; }

traces_packages() { missing_packages jq=jq; }

traces_tools() { provide "Jaeger $JAEGER (4 minutes on two cores)" has_jaeger "$JAEGER_DIR" build_jaeger; }

has_jaeger() { has_programs "$JAEGER_DIR" jaeger; }

# build_jaeger TMP: its main program, in its own module, whose go.mod has replacements that no other module may have.
build_jaeger() {
  local tmp=$1 module
  command -v go > /dev/null || die "Go 1.21 or newer is needed to build Jaeger (it fetches the newer Go that it needs)"
  cd "$tmp"
  module=$(go mod download -json "github.com/jaegertracing/jaeger@v$JAEGER" | jq --raw-output .Dir)
  cp --recursive "$module" source
  chmod --recursive u+w source
  mkdir bin
  cd source
  export GOFLAGS=-mod=readonly
  run_logged "$CACHE/log/jaeger.log" go build -trimpath -ldflags "-s -w" -o "$tmp/bin/" ./cmd/jaeger
  rm -rf "$tmp/source"
}

krew_packages() { :; }

krew_tools() { provide "krew $KREW (20 s on two cores)" has_krew "$KREW_DIR" build_krew; }

has_krew() { has_programs "$KREW_DIR" krew; }

build_krew() {
  command -v go > /dev/null || die "Go 1.21 or newer is needed to build krew"
  GOBIN=$1/bin run_logged "$CACHE/log/krew.log" go install "sigs.k8s.io/krew/cmd/krew@v$KREW"
}

book_packages() { missing_packages gcc=gcc libc6-dev=/usr/include/stdlib.h jq=jq; }

# Without what serves and watches a book: it is built, and looked at as files.
book_tools() {
  provide "mdBook $MDBOOK (12 minutes beside other builds)" has_mdbook "$MDBOOK_DIR" \
    cargo_install "$CACHE/log/mdbook.log" mdbook "$MDBOOK" --no-default-features --features search
}

has_mdbook() { has_programs "$MDBOOK_DIR" mdbook; }

# What compiles for arm64 on another machine: C for its libraries, and Debian's Rust, which alone is of one release with a std for arm64.
arm64_packages() {
  missing_packages gcc-aarch64-linux-gnu=aarch64-linux-gnu-gcc libc6-dev-arm64-cross=/usr/aarch64-linux-gnu/include/stdlib.h \
    rustc-web=/usr/bin/rustc
}

arm64_tools() {
  # rustc may have been installed a moment ago.
  ARM64_DIR=$(arm64_sysroot)
  provide "Rust's std for arm64 (30 seconds)" has_arm64_std "$ARM64_DIR" fetch_arm64_std
}

has_arm64_std() { compgen -G "$ARM64_DIR/lib/rustlib/aarch64-unknown-linux-gnu/lib/libstd-*.rlib" > /dev/null; }

# fetch_arm64_std TMP: out of Debian's package for arm64, of the release of this machine's rustc-web, with what the compiler has for this
# machine beside it. With package lists of its own: nothing is installed, and the machine stays one of one architecture.
fetch_arm64_std() {
  local tmp=$1 version log=$CACHE/log/arm64-std.log here
  version=$(dpkg-query --show --showformat '${Version}' rustc-web)
  here=$(/usr/bin/rustc --print host-tuple)
  mkdir -p "$tmp/apt"/{lists,archives}/partial "$tmp/lib/rustlib"
  local options=(-qq -o "Dir::State::Lists=$tmp/apt/lists" -o "Dir::Cache=$tmp/apt" -o APT::Sandbox::User=root
    -o APT::Architecture=arm64 -o APT::Architectures=arm64)
  run_logged "$log" apt-get "${options[@]}" update
  (cd "$tmp/apt" && run_logged "$log" apt-get "${options[@]}" download "libstd-rust-web-dev=$version")
  dpkg --extract "$tmp/apt"/libstd-rust-web-dev_*_arm64.deb "$tmp/apt/package"
  mv "$tmp/apt/package/usr/lib/rustlib/aarch64-unknown-linux-gnu" "$tmp/lib/rustlib"
  ln -s "/usr/lib/rustlib/$here" "$tmp/lib/rustlib/$here"
  rm -r "$tmp/apt"
}

fuzz_packages() { missing_packages gcc=gcc g++=g++ libc6-dev=/usr/include/stdlib.h; }

fuzz_tools() {
  provide "cargo-fuzz $CARGO_FUZZ (1 minute)" has_cargo_fuzz "$CARGO_FUZZ_DIR" \
    cargo_install "$CACHE/log/cargo-fuzz.log" cargo-fuzz "$CARGO_FUZZ"
}

has_cargo_fuzz() { has_programs "$CARGO_FUZZ_DIR" cargo-fuzz; }

lint_packages() { missing_packages shellcheck=shellcheck; }

lint_tools() {
  provide "actionlint $ACTIONLINT (20 seconds)" has_actionlint "$ACTIONLINT_DIR" build_actionlint
  provide "cargo-deny $CARGO_DENY (4 minutes)" has_cargo_deny "$CARGO_DENY_DIR" \
    cargo_install "$CACHE/log/cargo-deny.log" cargo-deny "$CARGO_DENY"
  provide "a reader of Grafana's dashboards, by the schema of its SDK $GRAFANA_SCHEMA (30 s)" has_grafana_schema "$GRAFANA_SCHEMA_DIR" \
    build_grafana_schema
}

has_actionlint() { has_programs "$ACTIONLINT_DIR" actionlint; }

build_actionlint() { go_build "$1" lint/actionlint github.com/rhysd/actionlint "$ACTIONLINT" "" github.com/rhysd/actionlint/cmd/actionlint; }

has_grafana_schema() { has_programs "$GRAFANA_SCHEMA_DIR" grafana; }

build_grafana_schema() { go_build "$1" grafana github.com/grafana/grafana-foundation-sdk/go "$GRAFANA_SCHEMA" "" .; }

has_cargo_deny() { has_programs "$CARGO_DENY_DIR" cargo-deny; }

# What a release is made and looked into with, and what makes its image without a container engine.
release_packages() {
  missing_packages binutils=objcopy openssh-client=ssh-keygen python3=python3 buildah=buildah mmdebstrap=mmdebstrap \
    qemu-user=qemu-aarch64
}

release_tools() {
  provide "cargo-auditable $CARGO_AUDITABLE (1 minute)" has_cargo_auditable "$CARGO_AUDITABLE_DIR" \
    cargo_install "$CACHE/log/cargo-auditable.log" cargo-auditable "$CARGO_AUDITABLE"
}

has_cargo_auditable() { has_programs "$CARGO_AUDITABLE_DIR" cargo-auditable; }

browser_packages() { missing_packages chromium=chromium npm=npm; }

browser_tools() { provide "speedscope $SPEEDSCOPE" has_speedscope "$SPEEDSCOPE_DIR" fetch_speedscope; }

has_speedscope() { [[ -s $SPEEDSCOPE_DIR/package/dist/release/index.html ]]; }

# fetch_speedscope TMP: its page, which needs nothing else.
fetch_speedscope() {
  run_logged "$CACHE/log/speedscope.log" npm pack --silent --pack-destination "$1" "speedscope@$SPEEDSCOPE"
  tar --extract --gzip --file "$1/speedscope-$SPEEDSCOPE.tgz" --directory "$1"
}

main "$@"
