#!/usr/bin/env bash
# image.sh OUT.tar [NAME]: builds the three binaries and packs them, with the libraries they need, into an OCI archive.
# No container engine is needed; where there is one, the Dockerfile makes the same image. CKB_PROBE_PROFILE is cargo's profile: release,
# unless it is for tests alone (ci).
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"
out=${1:?usage: image.sh OUT.tar [NAME]}
name=${2:-registry.local/ckb-probe/ckb-probe:dev}
cd "$here/.."

profile=${CKB_PROBE_PROFILE:-release}
step "building the operator, the agent and the command line ($profile)"
packages=()
# A release is built as scripts/release.sh does. What is for tests is built beside them, once.
[[ $profile != release ]] || packages=(--package ckb-probe-agent --package ckb-probe-operator)
cargo build --locked --profile "$profile" "${packages[@]}" --bin ckb-probe-operator --bin node-agent --bin ckb-probe

step "packing $name"
mkdir -p "$(dirname "$out")"
files=()
for binary in ckb-probe-operator node-agent ckb-probe; do
  files+=("target/$profile/$binary:/usr/local/bin/$binary")
done
tests/cluster/oci_archive.py --libs "$out" "$name" '["/usr/local/bin/ckb-probe"]' "${files[@]}"
