#!/usr/bin/env bash
# dependencies.sh restore|save: what crates of registries are compiled to, kept between clones of one machine: cargo finds in it what its
# lock file, its compiler and its profiles ask for, and compiles what it does not find. Of our own crates nothing is kept.
#
# Nothing fails for want of it: a machine that has none compiles all.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/scripts/lib.sh"
cd "$ROOT"

# For how many days one is kept that nobody asks for.
KEPT_DAYS=7
# Folders of target/ that cargo compiles into.
FOLDERS=(debug ci fuzz/lint/debug)

# own: the names of our own packages, and of what they are compiled to; a folder or file of target/ begins with such a name.
own() {
  local manifest
  for manifest in Cargo.toml {node-agent,operator}/fuzz/Cargo.toml; do
    cargo metadata --locked --no-deps --format-version 1 --manifest-path "$manifest" || return 1
  done | jq --raw-output '.packages[] | .name, .targets[].name' | tr - _ | sort --unique
}

# foreign NAMES: of what is in target/, what crates of registries were compiled to: what is of none of these names.
foreign() {
  local folder part
  for folder in "${FOLDERS[@]}"; do
    for part in deps .fingerprint build; do
      [[ ! -d target/$folder/$part ]] ||
        find "target/$folder/$part" -mindepth 1 -maxdepth 1 -printf "$folder/$part/%f\n"
    done
  done | awk '
    FILENAME != "-" { own[$0] = 1; next }
    {
      name = $0
      sub(/^.*\//, "", name)
      if (name ~ /\.(rlib|rmeta|so)$/) sub(/^lib/, "", name)
      sub(/-[0-9a-f]+(\..*)?$/, "", name)
      gsub(/-/, "_", name)
      if (!(name in own)) print
    }' <(echo "$1") -
}

# Manifests too: they say with which features.
key=$({ git ls-files -z '*Cargo.toml' '*Cargo.lock' | xargs -0 cat && rustc --version --verbose; } | sha256sum)
kept=$CACHE/dependencies-${key:0:16}.tar

case ${1:-} in
  restore)
    # Nothing that was compiled here is replaced.
    [[ -f $kept && ! -d target/debug && ! -d target/ci ]] || exit 0
    mkdir -p target
    tar --extract --file "$kept" --directory target
    touch "$kept"
    ;;
  save)
    [[ ! -f $kept ]] || exit 0
    names=$(own)
    find "$CACHE" -maxdepth 1 -name 'dependencies-*' -mtime "+$KEPT_DAYS" -delete
    new=$(mktemp "$kept.XXXXXX")
    trap 'rm -f "$new"' EXIT
    foreign "$names" | tar --create --file "$new" --directory target --files-from -
    mv "$new" "$kept"
    ;;
  *) die "usage: dependencies.sh restore|save" ;;
esac
