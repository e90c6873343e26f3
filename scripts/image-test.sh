#!/usr/bin/env bash
# image-test.sh [RELEASE]: builds the Dockerfile twice out of each archive of a release (target/release-VERSION, made where there is none), with
# buildah, on a base that Debian's packages make; looks whether that is what docs/releases.md says, and leaves it as an OCI archive,
# target/images/release.tar, and for another architecture than this machine's release-ARCHITECTURE.tar, whose programs an emulator runs. Needs
# root, and scripts/setup.sh release before; a base needs the mirror of Debian once (target/images/base-ARCHITECTURE.tar is taken where it is
# there already, for machines without). Ends with one line: N passed, N failed.
#
# `IMAGE=target/images/release.tar make e2e` has that very image play the end-to-end tests.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
need_root image-test.sh
cd "$here/.."

BINARIES=(ckb-probe ckb-probe-operator node-agent)
NAME=registry.local/ckb-probe/ckb-probe:dev
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
release=${1:-target/release-$version}
# What the base holds is of its own time.
BASE_EPOCH=1700000000

work=$(mktemp -d)
trap 'engine rm --all > /dev/null 2>&1 || true; rm -rf "$work"' EXIT

# engine ARGUMENT...: buildah, whose images and containers are in a folder of this run's, in plain folders: overlays are not to be had in every
# container, nor are namespaces.
engine() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }

# base OUT: a root file system with a C library, and nothing else: neither what packages were fetched with, nor this machine's names.
base() {
  local parts=(lib tmp usr/lib)
  step "making a base of Debian's packages for $architecture"
  SOURCE_DATE_EPOCH=$BASE_EPOCH run_logged "$work/mmdebstrap.log" mmdebstrap --variant=extract --architectures="$architecture" \
    --include=libc6,libgcc-s1 --dpkgopt='path-exclude=/usr/share/*' --dpkgopt='path-exclude=*/gconv/*' bookworm "$work/base"
  # Where the loader is, on x86-64.
  [[ ! -e $work/base/lib64 ]] || parts+=(lib64)
  tar --create --directory "$work/base" --sort=name --mtime="@$BASE_EPOCH" --numeric-owner --file "$1.partial" "${parts[@]}"
  mv "$1.partial" "$1"
  rm -rf "$work/base"
}

# build NAME: the image, out of what is unpacked in $work/context.
build() {
  run_logged "$work/build.log" engine build --isolation chroot --no-cache --pull-never --arch "$architecture" --timestamp "$SOURCE_DATE_EPOCH" \
    --build-arg BASE="localhost/base-$architecture" --build-arg VERSION="$version" --build-arg REVISION="$revision" --tag "$1" "$work/context"
}

config() { engine inspect --type image "localhost/one-$architecture" | jq --raw-output ".OCIv1$1"; }

# in_image PROGRAM ARGUMENT...: runs a program of the image, in it, or by an emulator with the libraries of the image.
in_image() {
  local program=$1 container
  shift
  if [[ $architecture == "$(dpkg --print-architecture)" ]]; then
    # One of its own: whoever runs something in a container gets files of the host's in it.
    container=$(engine from --pull-never "localhost/one-$architecture")
    engine run --isolation chroot "$container" -- "$program" "$@"
    engine rm "$container" > /dev/null
  else
    "qemu-$machine" -L "$mounted" "$mounted$program" "$@"
  fi
}

# Each check of the image is a function; what it prints is why it failed.

two_builds_one_digest() {
  local one two
  one=$(engine inspect --type image --format '{{.FromImageDigest}}' "localhost/one-$architecture")
  two=$(engine inspect --type image --format '{{.FromImageDigest}}' "localhost/two-$architecture")
  [[ $one == sha256:* && $one == "$two" ]] || die "$one and $two"
  echo "$one"
}

labels() {
  local label
  for label in title description source documentation licenses version revision; do
    [[ -n $(config ".config.Labels[\"org.opencontainers.image.$label\"] // \"\"") ]] || die "no label org.opencontainers.image.$label"
  done
  [[ $(config '.config.Labels["org.opencontainers.image.version"]') == "$version" ]] || die "another version than $version"
}

of_the_architecture() { [[ $(config .architecture) == "$architecture" ]] || die "it says that it is for $(config .architecture)"; }

nobody_in_particular() { [[ $(config .config.User) == 65532:65532 ]] || die "it runs as $(config .config.User)"; }

# programs_run: each says who it is and how it is used, in the image.
programs_run() {
  local said program
  for program in "${BINARIES[@]}"; do
    said=$(in_image "/usr/local/bin/$program" --version)
    [[ $said == "$program $version" ]] || die "$program --version says $said"
    in_image "/usr/local/bin/$program" --help > "$work/help" || die "$program --help fails"
    grep --quiet '^Usage: ' "$work/help" || die "$program --help does not say how it is used"
  done
}

same_bytes_as_the_archive() {
  local program
  for program in "${BINARIES[@]}"; do cmp "$work/archive-$architecture/bin/$program" "$mounted/usr/local/bin/$program"; done
}

# crates_are_named: what the programs in the image say they are made of is what the release's list says.
crates_are_named() {
  scripts/sbom.py --bpf ebpf/programs/Cargo.toml ckb-probe "$version" "${BINARIES[@]/#/$mounted/usr/local/bin/}" > "$work/list"
  diff <(jq .components "$work/list") <(jq .components "$release/ckb-probe-$version-$machine-linux-gnu.cdx.json")
  (($(jq '[.components[] | select(.purl)] | length' "$work/list") > 100)) || die "it names no hundred crates"
}

# minimal: nothing but a C library, what it needs, and the programs; nobody becomes anybody else by running something.
minimal() {
  local files
  files=$(find "$mounted" -type f -perm /111 ! -name '*.so' ! -name '*.so.*' -printf '%P\n' | sort | tr '\n' ' ')
  [[ $files == "usr/local/bin/ckb-probe usr/local/bin/ckb-probe-operator usr/local/bin/node-agent " ]] || die "it can also run: $files"
  files=$(find "$mounted" -type f -perm /6000 -printf '%P ')
  [[ -z $files ]] || die "these run as somebody else: $files"
}

# try_image: builds it for $architecture, and looks at it.
try_image() {
  local root=target/images/base-$architecture.tar out=target/images/release-$architecture.tar scratch name check said status
  [[ $architecture != "$(dpkg --print-architecture)" ]] || out=target/images/release.tar
  [[ -e $root ]] || base "$root"
  mkdir "$work/archive-$architecture"
  tar --extract --gzip --touch --strip-components=1 --file "$release/ckb-probe-$version-$machine-linux-gnu.tar.gz" \
    --directory "$work/archive-$architecture"

  step "building the image for $architecture twice"
  scratch=$(engine from --arch "$architecture" scratch)
  engine add --quiet "$scratch" "$root" / > /dev/null
  engine config --arch "$architecture" "$scratch"
  engine commit --quiet --timestamp "$BASE_EPOCH" --rm "$scratch" "localhost/base-$architecture" > /dev/null
  for name in one two; do
    # At another time, and out of files of another time.
    cp --recursive "$work/archive-$architecture" "$work/context"
    build "localhost/$name-$architecture"
    rm -rf "$work/context"
  done
  mounted=$(engine mount "$(engine from --arch "$architecture" --pull-never "localhost/one-$architecture")")

  for check in two_builds_one_digest labels of_the_architecture nobody_in_particular programs_run same_bytes_as_the_archive crates_are_named minimal; do
    # Not as a condition, in which a failure would not end it.
    set +e
    said=$(
      set -e
      "$check" 2>&1
    )
    status=$?
    set -e
    if ((status == 0)); then
      passed=$((passed + 1))
      step "$architecture: $check${said:+: $said}"
    else
      failed=$((failed + 1))
      printf 'FAILED  %s: %s: %s\n' "$architecture" "$check" "$said"
    fi
  done
  rm -f "$out"
  engine push --quiet "localhost/one-$architecture" "oci-archive:$out:$NAME"
  step "$out ($(du -h --apparent-size "$out" | cut -f 1), of which the base $(du -h --apparent-size "$root" | cut -f 1) unpacked)"
}

[[ -e $release/SHA256SUMS ]] || scripts/release.sh "$release"
(cd "$release" && sha256sum --check --quiet --strict SHA256SUMS)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
revision=$(git rev-parse HEAD)
mkdir -p target/images

passed=0 failed=0
for machine in x86_64 aarch64; do
  [[ -e $release/ckb-probe-$version-$machine-linux-gnu.tar.gz ]] || continue
  case $machine in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
  esac
  try_image
done
printf '\n%d passed, %d failed\n' "$passed" "$failed"
((failed == 0 && passed > 0))
