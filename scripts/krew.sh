#!/usr/bin/env bash
# krew.sh [RELEASE]: installs kubectl's plugin by krew from a release (a folder that release.sh made), without a network and into a folder of
# its own, for each architecture that is in it, and runs that of this machine. RELEASE unset: an archive of this machine's architecture alone,
# like that of a release, of what cargo builds (CKB_PROBE_PROFILE: release, unless it is for tests alone, ci). Needs krew: setup.sh krew.
#
# krew.sh manifest RELEASE: prints the manifest for krew of the archives in a release. The plugin is the ckb-probe in them, under another name.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"

# As krew calls architectures, and as archives do.
declare -A MACHINES=([amd64]=x86_64 [arm64]=aarch64)
PLUGIN=kubectl-ckbprobe
out=target/krew

main() {
  local release
  # Before anything else: names are the caller's.
  [[ -z ${2:-${1:-}} ]] || release=$(realpath "${2:-$1}")
  cd "$here/.."
  version=$(sed -n '/^\[workspace\.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
  case ${1:-} in
    manifest)
      [[ -n ${2:-} ]] || die "usage: krew.sh manifest RELEASE"
      manifest "$release"
      ;;
    *)
      rm -rf "${out:?}"
      mkdir -p "$out"
      [[ -n ${release:-} ]] || {
        release=$PWD/$out/release
        pack_own "$release"
      }
      try "$release"
      ;;
  esac
}

# archive_of RELEASE ARCHITECTURE
archive_of() { echo "$1/ckb-probe-$version-${MACHINES[$2]}-linux-gnu.tar.gz"; }

# in_it RELEASE: the architectures of which it has an archive.
in_it() {
  local architecture
  for architecture in amd64 arm64; do
    [[ ! -e $(archive_of "$1" "$architecture") ]] || echo "$architecture"
  done
}

# manifest RELEASE
manifest() {
  local repository architecture archive architectures
  repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
  mapfile -t architectures < <(in_it "$1")
  ((${#architectures[@]} > 0)) || die "$1 has no archive of $version: scripts/release.sh makes them"
  sed -e "s|@VERSION@|v$version|; s|@REPOSITORY@|$repository|" config/krew/ckbprobe.yaml
  echo "  platforms:"
  for architecture in "${architectures[@]}"; do
    archive=$(archive_of "$1" "$architecture")
    cat << EOF
  - selector:
      matchLabels: {os: linux, arch: $architecture}
    uri: "$repository/releases/download/v$version/${archive##*/}"
    sha256: "$(sha256sum "$archive" | cut --delimiter ' ' --fields 1)"
    bin: $PLUGIN
    files:
    - {from: ckb-probe-$version/bin/ckb-probe, to: $PLUGIN}
    - {from: ckb-probe-$version/LICENSE, to: .}
EOF
  done
}

# pack_own OUT: what of a release krew takes, of programs as they are built here.
pack_own() {
  local profile=${CKB_PROBE_PROFILE:-release} folder=$1/ckb-probe-$version
  step "building ckb-probe ($profile)"
  cargo build --locked --profile "$profile" --package ckb-probe-agent --bin ckb-probe
  install -D --target-directory "$folder/bin" "${CARGO_TARGET_DIR:-target}/$profile/ckb-probe"
  install --mode 644 --target-directory "$folder" LICENSE
  tar --create --gzip --directory "$1" --file "$(archive_of "$1" "$(dpkg --print-architecture)")" "${folder##*/}"
  rm -r "$folder"
}

# try RELEASE
try() {
  local krew=$CACHE/krew-$KREW/bin/krew architecture installed told
  [[ -x $krew ]] || die "krew is missing: run scripts/setup.sh krew"
  manifest "$1" > "$out/ckbprobe.yaml"
  for architecture in $(in_it "$1"); do
    export KREW_ROOT=$PWD/$out/root-$architecture
    # An index that is there, and empty, is not fetched.
    mkdir -p "$KREW_ROOT/index/default"
    KREW_ARCH=$architecture run_logged "$out/krew-$architecture.log" unshare --net \
      "$krew" install --manifest "$out/ckbprobe.yaml" --archive "$(archive_of "$1" "$architecture")" < /dev/null
    installed=$KREW_ROOT/bin/$PLUGIN
    [[ $(readelf --file-header "$(realpath "$installed")") == *"$(told_machine "$architecture")"* ]] ||
      die "for $architecture krew installed a program of another machine"
    if [[ $architecture == "$(dpkg --print-architecture)" ]]; then
      told=$(PATH=$KREW_ROOT/bin:$PATH $PLUGIN --version)
      [[ $told == "$PLUGIN $version" ]] || die "krew installed $told, and not version $version"
    fi
    step "krew installs it for $architecture: ${told:-it is not run here}"
    told=
  done
}

# told_machine ARCHITECTURE: as readelf has it.
told_machine() {
  case $1 in
    amd64) echo X86-64 ;;
    arm64) echo AArch64 ;;
  esac
}

main "$@"
