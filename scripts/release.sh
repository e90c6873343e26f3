#!/usr/bin/env bash
# release.sh [OUT]: everything that a release holds, in OUT (target/release-VERSION): for each architecture an archive of the three programs
# and a list of all crates (CycloneDX), the chart, the CRDs, the manifest for krew, the digests of these, and their signature. docs/releases.md says what each is
# for, and how it is verified.
#
# RELEASE_KEY names the SSH key that signs, one of those that the file allowed_signers knows (ALLOWED_SIGNERS another one); without it nothing
# is signed. PROGRAMS names a folder with programs that are built already, in a folder amd64, or arm64, or in both: the release is of those.
# By default they are built, which takes ten minutes each; those of arm64 are compiled on x86-64, by what scripts/setup.sh arm64 installs.
#
# The same programs make the same bytes: whatever has a time has that of SOURCE_DATE_EPOCH, by default the commit's.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
cd "$here/.."

BINARIES=(ckb-probe ckb-probe-operator node-agent)
# Whose they are: built beside tests, they would have what only tests ask of what both are linked with.
PACKAGES=(ckb-probe-agent ckb-probe-operator)
# As archives are called, and as readelf calls them, by Debian's names.
declare -A MACHINES=([amd64]=x86_64 [arm64]=aarch64)
declare -A TOLD_MACHINES=([amd64]='Advanced Micro Devices X86-64' [arm64]=AArch64)
# The oldest C library that the programs run with: that of Ubuntu 22.04, and older than Debian 12's.
GLIBC_FLOOR=2.35
# Who signs, and what for: a signature that the same key made for anything else is none of a release.
IDENTITY=ckb-probe
NAMESPACE=ckb-probe-release
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

main() {
  version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
  one_version
  local out=${1:-target/release-$version} architecture programs name architectures=(amd64 arm64)
  if [[ -n ${PROGRAMS:-} ]]; then mapfile -t architectures < <(ls "$PROGRAMS"); fi
  # What an earlier attempt left is in nobody's way, and is not signed along.
  rm -rf "${out:?}"
  mkdir -p "$out"
  for architecture in "${architectures[@]}"; do
    [[ -n ${MACHINES[$architecture]:-} ]] || die "there are no programs of $architecture: of ${!MACHINES[*]} alone"
    programs=${PROGRAMS:+$PROGRAMS/$architecture}
    if [[ -z $programs ]]; then
      programs=target/release-build/${MACHINES[$architecture]}-unknown-linux-gnu/release
      step "building $version for $architecture (ten minutes)"
      build "$architecture"
    fi
    step "looking at the programs of $architecture"
    look_at "$programs" "$architecture"
    step "packing $version for $architecture into $out"
    name=$out/ckb-probe-$version-${MACHINES[$architecture]}-linux-gnu
    archive "$programs" > "$name.tar.gz"
    scripts/sbom.py --bpf ebpf/programs/Cargo.toml ckb-probe "$version" "${BINARIES[@]/#/$programs/}" > "$name.cdx.json"
  done
  chart > "$out/ckb-probe-$version.tgz"
  cat crds/generated/*.yaml > "$out/ckb-probe-$version-crds.yaml"
  scripts/krew.sh manifest "$out" > "$out/ckb-probe-$version-krew.yaml"
  (cd "$out" && sha256sum -- *) > "$work/SHA256SUMS"
  mv "$work/SHA256SUMS" "$out/"
  if [[ -n ${RELEASE_KEY:-} ]]; then sign "$out"; else step "not signed: RELEASE_KEY names no key"; fi
  cat "$out/SHA256SUMS"
}

# one_version: the programs, the chart and the list of changes say the same.
one_version() {
  local key
  for key in version appVersion; do
    grep --quiet --line-regexp "$key: $version" charts/ckb-probe/Chart.yaml ||
      die "Cargo.toml says $version, and charts/ckb-probe/Chart.yaml has another $key"
  done
  grep --quiet "^## $version" CHANGELOG.md || die "CHANGELOG.md does not say what is new in $version"
}

# build ARCHITECTURE: the programs, each with a list of its crates in it, and without the names of this machine's folders.
build() (
  home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
  auditable=$CACHE/cargo-auditable-$CARGO_AUDITABLE/bin
  [[ -x $auditable/cargo-auditable ]] || die "cargo-auditable is missing: run scripts/setup.sh release"
  flags=
  if [[ $1 != "$(dpkg --print-architecture)" ]]; then
    [[ $1 == arm64 ]] || die "programs of $1 are built on such a machine alone"
    compile_for_arm64
    # Cargo passes over these where there are any for all.
    flags=$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS
  fi
  PATH=$auditable:$PATH \
    RUSTFLAGS="$flags --remap-path-prefix=$home=/cargo --remap-path-prefix=$PWD=/ckb-probe" \
    CFLAGS="-ffile-prefix-map=$home=/cargo -ffile-prefix-map=$PWD=/ckb-probe" \
    cargo auditable build --locked --release --target "${MACHINES[$1]}-unknown-linux-gnu" --target-dir target/release-build \
    "${PACKAGES[@]/#/--package=}" "${BINARIES[@]/#/--bin=}"
)

# look_at DIR ARCHITECTURE: the programs run where they are said to, and tell nothing of where they were built.
look_at() {
  local binary needed newest machine
  for binary in "${BINARIES[@]}"; do
    machine=$(readelf --file-header "$1/$binary" | sed -n 's/^ *Machine: *//p')
    [[ $machine == "${TOLD_MACHINES[$2]}" ]] || die "$binary of $2 is for $machine"
    [[ $binary != node-agent ]] || ! objdump --private-headers "$1/$binary" | grep 'NEEDED *libm\.so' > /dev/null ||
      die "$binary of $2 has the C library's mathematics mapped, half a megabyte on each node"
    needed=$(objdump --private-headers "$1/$binary" | sed -n 's/.* GLIBC_\(.*\)$/\1/p')
    newest=$(printf '%s\n' "$GLIBC_FLOOR" "$needed" | sort --version-sort | tail -n 1)
    [[ $newest == "$GLIBC_FLOOR" ]] || die "$binary needs glibc $newest, and releases are said to run with $GLIBC_FLOOR"
    # What ends with /cargo/ may be that of the build's own mapping.
    ! grep --quiet --text --fixed-strings --regexp="$PWD/" --regexp="${CARGO_HOME:-$HOME/.cargo}/" "$1/$binary" ||
      die "$binary holds the names of folders of this machine: another one would build another"
  done
}

# pack DIR: what is in a folder, as an archive of the same bytes at any time and for anybody.
pack() {
  tar --create --directory "$(dirname "$1")" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX "$(basename "$1")" | gzip --no-name --best
}

# archive PROGRAMS: it is also what the Dockerfile in it makes an image of.
archive() {
  local dir=$work/ckb-probe-$version
  install -D --target-directory "$dir/bin" "${BINARIES[@]/#/$1/}"
  install --mode 644 --target-directory "$dir" Dockerfile LICENSE CHANGELOG.md
  pack "$dir"
}

# chart: as helm packs it, but for the times, which are those of the moment there.
chart() {
  local helm=$CACHE/helm-$HELM/bin/helm
  [[ -x $helm ]] || helm=$(command -v helm) || die "helm is missing: run scripts/setup.sh cluster"
  "$helm" package --destination "$work/packed" charts/ckb-probe > /dev/null
  tar --extract --touch --gzip --file "$work/packed/ckb-probe-$version.tgz" --directory "$work/packed"
  pack "$work/packed/ckb-probe" > "$work/ckb-probe-$version.tgz"
  "$helm" lint --quiet --strict "$work/ckb-probe-$version.tgz" >&2
  cat "$work/ckb-probe-$version.tgz"
}

# sign OUT: the digests, and so everything. What nobody could verify is not signed.
sign() {
  local signers=${ALLOWED_SIGNERS:-allowed_signers}
  step "signing with $RELEASE_KEY"
  ssh-keygen -q -Y sign -f "$RELEASE_KEY" -n "$NAMESPACE" "$1/SHA256SUMS"
  ssh-keygen -q -Y verify -f "$signers" -I "$IDENTITY" -n "$NAMESPACE" -s "$1/SHA256SUMS.sig" < "$1/SHA256SUMS" || {
    rm "$1/SHA256SUMS.sig"
    die "$signers does not know this key, so nobody could verify it. Its line: $IDENTITY namespaces=\"$NAMESPACE\" $(cut -d ' ' -f 1,2 "$RELEASE_KEY.pub")"
  }
}

main "$@"
