#!/bin/sh
# run.sh NAME CAPABILITIES TIERS KERNEL_TIERS: the tests of each kind as the agent would run, as root with these capabilities and
# no others (+bpf,+perfmon…). Exactly these tiers must work, for functions of processes (session,uprobe-multi…) and for
# those of the kernel (kprobe-multi…); none says that there is none. What it prints is read by scripts/test-kernels.sh.
here=$(dirname "$0")
name=$1
capabilities=$2
export CKB_PROBE_TIERS="$3" CKB_PROBE_KERNEL_TIERS="$4" CKB_PROBE_FIXTURES="$here/fixtures" RUST_BACKTRACE=0

# Root may not make one with these capabilities.
groups=/sys/fs/cgroup limit=memory.max
[ ! -d $groups/memory ] || groups=$groups/memory limit=memory.limit_in_bytes
export CKB_PROBE_MEMORY_GROUP=$groups/ckb-probe-$$
mkdir "$CKB_PROBE_MEMORY_GROUP"
echo 16777216 > "$CKB_PROBE_MEMORY_GROUP/$limit"

# By its path: busybox would take a setpriv of its own, which knows no bounding set.
as_agent() { /usr/bin/setpriv --no-new-privs --inh-caps -all --bounding-set "-all,$capabilities" "$@"; }

check() { as_agent "$here/ckb-probe" check; }

# tests PROGRAM [FILTER]...
tests() {
  program=$1
  shift
  as_agent "$here/$program" "$@" --test-threads 1 --show-output
}

while read -r kind; do
  echo "=== $name $kind begins on $(uname -r) at $(date +%s)"
  case $kind:$CKB_PROBE_TIERS in
    # It must say so.
    rocksdb:none) ! check && tests kinds rocksdb:: ;;
    rocksdb:*) check && tests ground_truth ;;
    bystander:*) tests kinds bystander:: --ignored ;;
    # Not those of a kind whose name ends like this one's.
    *) tests kinds "$kind::" --skip "_$kind::" ;;
  esac
  echo "=== $name $kind ends with $? at $(date +%s)"
done < "$here/$name"
rmdir "$CKB_PROBE_MEMORY_GROUP"
