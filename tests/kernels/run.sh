#!/bin/sh
# run.sh NAME CAPABILITIES TIERS: the ground-truth test as the agent would run, as root with these capabilities and no
# others (+bpf,+perfmon…). Exactly these tiers (session,uprobe-multi…) must work. What it prints is read by
# scripts/test-kernels.sh.
here=$(dirname "$0")
export CKB_PROBE_TIERS="$3" CKB_PROBE_FIXTURES="$here/fixtures" RUST_BACKTRACE=0

# By its path: busybox would take a setpriv of its own, which knows no bounding set.
as_agent() { /usr/bin/setpriv --no-new-privs --inh-caps -all --bounding-set "-all,$capabilities" "$@"; }

name=$1
capabilities=$2
echo "=== $name begins on $(uname -r) at $(date +%s)"
as_agent "$here/ckb-probe" check && as_agent "$here/ground_truth" --test-threads 1 --show-output
echo "=== $name ends with $? at $(date +%s)"
