#!/bin/sh
# init.sh [NAME CAPABILITIES TIERS KERNEL_TIERS]...: the first process of the emulated machine, whose arguments the kernel takes
# from its command line. Makes one run after the other and turns the machine off.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs tracing /sys/kernel/tracing
mount -t cgroup2 cgroup /sys/fs/cgroup
# Whoever makes groups in it may not do what modes do not allow.
chmod u+w /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
ip link set lo up
export CKB_PROBE_DISK=/dev/nvme0n1
for module in /modules/*; do [ ! -e "$module" ] || insmod "$module"; done
# A driver looks for its disks by itself.
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -b $CKB_PROBE_DISK ] || sleep 1; done
while [ $# -ge 4 ]; do
  /test/run.sh "$1" "$2" "$3" "$4"
  shift 4
done
poweroff -f
