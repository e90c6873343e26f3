#!/usr/bin/env bash
# krew.sh [URL]: packs kubectl's plugin, and writes a manifest for krew beside it, with the archive's checksum. URL is where the archive will
# be found; unset: the release of this version. CKB_PROBE_PROFILE is cargo's profile: release, unless it is for tests alone (ci).
# Where scripts/setup.sh krew has built krew, the manifest is tried: installed into a folder of its own, without a network, and run.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
cd "$here/.."

profile=${CKB_PROBE_PROFILE:-release}
version=$(sed -n '/^\[workspace\.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
archive=ckbprobe-linux-amd64.tar.gz
url=${1:-$repository/releases/download/v$version/$archive}
out=target/krew

step "building the plugin ($profile)"
cargo build --locked --profile "$profile" --package ckb-probe-kubectl --bin kubectl-ckbprobe
rm -rf "$out"
mkdir -p "$out/files"
cp "${CARGO_TARGET_DIR:-target}/$profile/kubectl-ckbprobe" LICENSE "$out/files"
# The same bytes each time: the checksum is of what is inside.
tar --create --sort name --owner 0 --group 0 --numeric-owner --mtime @0 --directory "$out/files" . | gzip --no-name > "$out/$archive"
rm -r "$out/files"
sed -e "s|@VERSION@|v$version|; s|@REPOSITORY@|$repository|; s|@URL@|$url|" \
  -e "s|@SHA256@|$(sha256sum "$out/$archive" | cut --delimiter ' ' --fields 1)|" config/krew/ckbprobe.yaml > "$out/ckbprobe.yaml"
step "$out/ckbprobe.yaml, $out/$archive"

[[ -x $CACHE/krew-$KREW/bin/krew ]] || exit 0
export KREW_ROOT=$PWD/$out/root
# An index that is there, and empty, is not fetched.
mkdir -p "$KREW_ROOT/index/default"
run_logged "$out/krew.log" unshare --net "$CACHE/krew-$KREW/bin/krew" install --manifest "$out/ckbprobe.yaml" --archive "$out/$archive" < /dev/null
installed=$(PATH=$KREW_ROOT/bin:$PATH kubectl-ckbprobe --version)
[[ $installed == "kubectl-ckbprobe $version" ]] || die "krew installed $installed, and not version $version"
step "krew installs it, and it runs: $installed"
